"""The page of settings is up to date and describes every setting."""

from feal.config.overrides import known_parameters
from settings_page import settings_page
from tests.paths import PROJECT


def test_page_is_up_to_date() -> None:
    assert (PROJECT / "docs" / "settings.md").read_text() == settings_page()


def test_every_parameter_is_on_the_page() -> None:
    page = settings_page()
    assert all(f"| `{name}` |" in page for name in known_parameters())
