"""How much of each group's risk no model of this kind could remove, in words and as a table."""

from dataclasses import dataclass

from fedminmax.core.text import counted, percent
from fedminmax.findings.records import Results
from fedminmax.findings.tables import Table
from fedminmax.findings.text import LOSS_NAMES, NOTHING

EXCESS = "excess"
DIGITS = 4


def is_excess(results: Results) -> bool:
    """Whether the run was played for the highest excess."""
    return results.method.options.get("objective") == EXCESS


@dataclass(frozen=True)
class _OwnRisk:
    group: str
    plain: float
    own: float

    @property
    def gain(self) -> float:
        return self.plain - self.own


def _each(results: Results) -> list[_OwnRisk]:
    """Return those of groups that training could focus on."""
    known = results.own_risks
    if known is None:
        return []
    each = map(_OwnRisk, results.groups, known.plain, known.own)
    return [one for one in each if one.group not in results.small_groups]


def own_risks_text(results: Results) -> str:
    """Say what could be removed, and of which group most; "" if nobody looked."""
    each = _each(results)
    if not each:
        return ""
    most = max(each, key=lambda one: one.gain)
    none = sum(one.gain == 0.0 for one in each)
    if not most.gain:
        return (
            "For no group does a model of its own, of this kind, reach a lower risk than the plain "
            "model on records that it has not seen: nothing of the groups' training risk is known "
            "to be avoidable."
        )
    others = f"; for {counted(none, 'group')} nothing is" if none else ""
    return (
        f"Of the plain model's training risk of “{most.group}” ({most.plain:.{DIGITS}f}), "
        f"{most.gain:.{DIGITS}f} is avoidable, more than of any other group: so much lower is its "
        "own best model of this kind, on records that it has not seen. The rest, "
        f"{_share(most)}, no model of this kind is known to remove{others}."
    )


def own_risks_table(results: Results) -> Table | None:
    """Return a line per group; None if nobody looked."""
    each = _each(results)
    if not each:
        return None
    return Table(
        f"Training risk by group ({LOSS_NAMES[results.loss]}), and what of it the group's own best "
        "model of this kind leaves on records that it has not seen",
        ("group", "standard", "own best model", "of it not avoidable"),
        tuple(
            (
                one.group,
                f"{one.plain:.{DIGITS}f}",
                f"{one.own:.{DIGITS}f}",
                _share(one) if one.plain else NOTHING,
            )
            for one in each
        ),
    )


def _share(one: _OwnRisk) -> str:
    return percent(one.own / one.plain)
