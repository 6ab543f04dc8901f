"""`fedminmax init`: from files to a configuration that the user can read and correct."""

from collections.abc import Sequence
from pathlib import Path

from fedminmax.cli.output_files import check_new_file
from fedminmax.core.files import write_text
from fedminmax.data.tables.config_text import config_text
from fedminmax.data.tables.propose import Proposal, propose


def init_config(
    files: Sequence[Path], target: str, groups: Sequence[str], holder: str | None, out: Path
) -> None:
    """Write the configuration unless there is one, and say what was found."""
    check_new_file(out, "--out")
    proposal = propose(files, target, groups, holder)
    write_text(out, config_text(proposal, out))
    print(f"{out}: {_summary(proposal)}")
    for column, guess in proposal.features.items():
        if guess.feature is None:
            print(f"column '{column}' is left out: it {guess.remark}")
    print(f"Look through {out}, then: fedminmax train {out}")


def _summary(proposal: Proposal) -> str:
    classes = len(proposal.target.classes)
    protected = [entry.column for entry in proposal.protected]
    features = [
        column
        for column, guess in proposal.features.items()
        if guess.feature and column not in protected
    ]
    task = f"{classes} classes" if classes else "regression"
    holders = "1 holder" if proposal.holders == 1 else f"{proposal.holders} holders"
    return (
        f"{holders}, {proposal.rows:,} rows, target '{proposal.target.column}' "
        f"({task}), {len(features)} features, groups by {' x '.join(protected)}"
    )
