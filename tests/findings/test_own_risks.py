"""What of each group's risk could be removed, in words and as a table."""

from fedminmax.findings.records import Results
from fedminmax.findings.training import own_risks_table, own_risks_text
from fedminmax.methods.shared.excess_server import OwnRisks


def results(own: OwnRisks | None) -> Results:
    return Results.model_construct(
        groups=("north", "south", "few"), small_groups=("few",), loss="cross_entropy", own_risks=own
    )


def test_the_group_with_the_most_to_gain_is_named() -> None:
    known = results(OwnRisks((0.5, 0.4, 0.9), (0.5, 0.3, 0.1)))
    text = own_risks_text(known)
    assert "“south” (0.4000), 0.1000 is avoidable" in text
    assert "75%" in text
    assert "few" not in text
    table = own_risks_table(known)
    assert table is not None
    assert [line[0] for line in table.lines] == ["north", "south"]
    assert table.lines[1] == ("south", "0.4000", "0.3000", "75%")


def test_nothing_is_said_if_nobody_looked_and_no_group_is_named_if_none_can_gain() -> None:
    assert own_risks_text(results(None)) == ""
    assert own_risks_table(results(None)) is None
    text = own_risks_text(results(OwnRisks((0.5, 0.4, 0.9), (0.5, 0.4, 0.1))))
    assert "For no group" in text
