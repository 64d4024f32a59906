from feal.analysis.report import contents
from feal.analysis.runs import Reading
from tests.analysis.made import made


def test_what_cannot_be_used_is_among_the_notices() -> None:
    said = "runs/one/state.json is damaged (it is missing). It is left out."
    whole = (made("random", 0, (0.2, 0.3, 0.4)),)
    assert said in contents(Reading(runs=whole, unused=1, left_out=(said,))).notices
    assert contents(whole).notices == ()
