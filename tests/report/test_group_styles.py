"""A group looks the same in every figure of every page, by its share of the rows."""

from dataclasses import replace

from fedminmax.report.curves import Curves, panels_of
from fedminmax.training.round_record import RoundRecord

GROUPS = tuple(f"group {number}" for number in range(12))
# The largest groups come last.
ROWS = tuple(range(100, 1300, 100))


def curves(risks: list[float], *, keeps_styles: bool) -> Curves:
    last = RoundRecord(
        1,
        0.1,
        risks=tuple(risks),
        weights=(),
        weights_over="nothing",
        participants=(0,),
        gradient_evaluations=1,
    )
    return Curves(
        "a",
        [last],
        groups=GROUPS,
        group_rows=ROWS,
        sites=("north",),
        risk="risk",
        decimals=3,
        keeps_styles=keeps_styles,
    )


def looks(run: Curves) -> dict[str, int]:
    panel = panels_of(run)[0]
    names = [panel.names[group] for group in panel.named]
    return dict(zip(names, panel.styles, strict=True))


def test_two_models_on_one_page_show_the_same_groups_in_the_same_styles() -> None:
    rising = [0.1 * number for number in range(12)]
    live = [looks(curves(risks, keeps_styles=True)) for risks in (rising, rising[::-1])]
    assert live[0] == live[1]
    assert list(live[0]) == list(GROUPS[:3:-1])


def test_a_large_group_keeps_its_style_where_others_are_named() -> None:
    rising = [0.1 * number for number in range(12)]
    one, other = (looks(curves(risks, keeps_styles=False)) for risks in (rising, rising[::-1]))
    both = {name for name in one if name in other and GROUPS.index(name) >= 4}
    assert len(both) == 4
    assert all(one[name] == other[name] for name in both)
    for own in (one, other):
        assert sorted(own.values()) == list(range(8))


def test_without_row_counts_groups_keep_their_order() -> None:
    run = replace(curves([0.5] * 12, keeps_styles=True), group_rows=())
    assert list(looks(run)) == list(GROUPS[:8])
