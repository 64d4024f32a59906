"""docs/privacy.md: every field that crosses a site's border, written from the message types themselves.

`python -m feal.federation.privacy > docs/privacy.md` brings the page up to date.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from feal.federation.messages import REPLIES, REQUESTS, Message
from feal.federation.statistics import Statistics

_HEAD = """# What leaves a site

Four kinds of messages cross a site's border, and nothing else does: no image, no sample id, no file name, no
single label, no score of a sample. These stay in the site's own folder. The page is written from the message
types (`python -m feal.federation.privacy`), and a test fails when the two differ.

What crosses can still say something: weights are learned from the site's images and may reveal traits of them
to whoever analyses them closely; class counts say how many labelled samples of each class a site has, and so with
a budget of one what the new label is (`share_counts: false` keeps them at home); sums over few test samples say
much about each of them.
"""


def privacy_page() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    for kind, request in REQUESTS.items():
        parts.append(f"## `{kind}`\n\n### To the site\n\n{_table(request)}")
        parts.append(f"### From the site\n\n{_table(REPLIES[kind])}")
    parts.append(f"## `statistics`: sums over a site's test samples\n\n{_table(Statistics)}")
    return "\n".join(parts)


def _table(type_: type[BaseModel]) -> str:
    rows = "\n".join(f"| `{name}` | {description} |" for name, description in _fields(type_))
    return f"| field | what it is |\n|---|---|\n{rows}\n"


def _fields(type_: type[BaseModel]) -> Iterator[tuple[str, str]]:
    for name, field in type_.model_fields.items():
        if name == "weights" and issubclass(type_, Message) and not type_.carries_weights:
            continue
        yield name, field.description or ""


if __name__ == "__main__":
    print(privacy_page(), end="")
