"""Run a study in its folder with progress bars on the terminal, or show its status.

FashionMNIST is loaded here for all commands that need it. If it is not on this machine, it is
downloaded, also with a progress bar.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedminmax import __version__
from fedminmax.cli.terminal import display, print_table, say, wide_console
from fedminmax.core.errors import InputError
from fedminmax.core.text import duration_text
from fedminmax.data.fashion_mnist import (
    FILES,
    FashionMnist,
    cache_folder,
    download_fashion_mnist,
    find_fashion_mnist,
    folders_to_search,
    load_fashion_mnist,
    missing_files,
    where_to_get_it,
)
from fedminmax.runs.folder import check_folder, claim_folder
from fedminmax.studies import finish
from fedminmax.studies.study import RunPlan, Study


@dataclass(frozen=True)
class Call:
    """One call of an experiment: its folder, time budget, and what to print."""

    folder: Path
    budget: float | None
    as_json: bool
    status_only: bool


def open_study(
    study: Study, plans: Sequence[RunPlan], config: Mapping[str, object], call: Call
) -> None:
    """Check every kind of run, and claim the folder for this study or refuse it."""
    finish.check_runs(study, plans)
    claim_folder(call.folder, {"version": __version__} | dict(config))


def finish_with_bars(title: str, study: Study, plans: Sequence[RunPlan], call: Call) -> int:
    """Finish the runs, or as many as the budget allows; return how many are left."""
    seconds = math.inf if call.budget is None else call.budget
    ticks = finish.finish_runs(study, plans, call.folder, seconds)
    return show_ticks(title, ticks, plans, call)


def show_ticks(
    title: str, ticks: Iterable[finish.Tick], plans: Sequence[RunPlan], call: Call
) -> int:
    """Advance the runs, with progress bars on the terminal; return how many are left."""
    costs = [plan.cost for plan in plans]
    with display(title, sum(costs)) as bars:
        current = -1
        for tick in ticks:
            plan = plans[tick.run]
            if tick.run != current:
                current = tick.run
                bars.start_run(f"{plan.setting} {plan.title}, fold {plan.fold}", plan.rounds)
            if tick.warning:
                say(f"warning: {tick.warning}")
            bars.show_round(tick.round)
            bars.show_work(sum(costs[: tick.run]) + plan.cost * tick.round / plan.rounds)
    return sum(not finish.is_finished(plan, finish.run_folder(call.folder, plan)) for plan in plans)


def print_status(plans: Sequence[RunPlan], config: Mapping[str, object], call: Call) -> None:
    """Print which runs are finished and which remain, with an estimate of their time."""
    check_folder(call.folder, {"version": __version__} | dict(config))
    statuses = finish.read_status(plans, call.folder)
    left = [finish.seconds_left(status, statuses) for status in statuses]
    if call.as_json:
        rows = [_as_json(status, rest) for status, rest in zip(statuses, left, strict=True)]
        print(json.dumps({"folder": str(call.folder), "runs": rows}))
        return
    console = wide_console()
    headers = ("Setting", "Method", "Fold", "Round", "of", "Spent", "Left, about")
    lines = [_cells(status, rest) for status, rest in zip(statuses, left, strict=True)]
    print_table(console, f"Runs in {call.folder}", headers, lines, names=2)
    console.print(_summary(statuses, left))


def _summary(statuses: list[finish.RunStatus], left: list[float | None]) -> str:
    finished = sum(status.finished for status in statuses)
    estimates = [rest for rest in left if rest is not None]
    total = (
        duration_text(sum(estimates))
        if len(estimates) == len(left)
        else "unknown before the first round"
    )
    return f"{finished} of {len(statuses)} runs are finished; time left: {total}."


def _cells(status: finish.RunStatus, rest: float | None) -> tuple[str, ...]:
    plan = status.plan
    return (
        plan.setting,
        plan.title,
        str(plan.fold),
        str(status.round),
        str(plan.rounds),
        duration_text(status.seconds),
        "done" if status.finished else _rest(rest),
    )


def _rest(seconds: float | None) -> str:
    return "?" if seconds is None else duration_text(seconds)


def _as_json(status: finish.RunStatus, rest: float | None) -> dict[str, object]:
    plan = status.plan
    return {
        "setting": plan.setting,
        "method": plan.title,
        "fold": plan.fold,
        "round": status.round,
        "rounds": plan.rounds,
        "finished": status.finished,
        "seconds": status.seconds,
        "seconds_left": rest,
    }


def fashion_mnist(data_dir: Path | None) -> FashionMnist:
    """Load the images from this machine; download them first if they are not on it."""
    if data_dir is not None and data_dir.exists() and not data_dir.is_dir():
        raise InputError(f"{data_dir} is a file; give the folder of the four files as --data-dir")
    target = data_dir or cache_folder()
    folder = find_fashion_mnist(folders_to_search(data_dir), target)
    if folder is None:
        _download(target, data_dir)
        folder = target
    elif data_dir is not None and data_dir not in (folder, folder.parent):
        say(f"{data_dir} has no FashionMNIST; using {folder}")
    return load_fashion_mnist(folder)


def _download(folder: Path, data_dir: Path | None) -> None:
    try:
        with display("download FashionMNIST", len(FILES)) as bars:
            names: list[str] = []
            for step in download_fashion_mnist(folder):
                if step.name not in names:
                    names.append(step.name)
                    bars.start_run(step.name, step.total or step.done)
                bars.show_round(step.done)
                bars.show_work(len(names) - 1 + step.done / (step.total or step.done))
    except InputError as error:
        missing = missing_files(folder)
        lacks = "FashionMNIST is not on this machine"
        if len(missing) < len(FILES):
            lacks = f"{folder} lacks {', '.join(missing)}"
        raise InputError(f"{lacks} and {error}, or {where_to_get_it(data_dir)}") from error
