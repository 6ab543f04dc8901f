"""Every page of the product, word by word, against a file that a person has read.

A page that says something else fails here, with the difference. If the difference is intended:

    GOLDEN=write python -m pytest tests/golden

writes the files again; read what `git diff tests/golden` shows before it is committed. Elsewhere
tests assert facts (names, numbers, options), not sentences.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from fedminmax.advice.cost import MessageBytes, Rounds
from fedminmax.advice.counts import Advice, RunCost, advise
from fedminmax.cli.advise import print_advice
from fedminmax.cli.frontier import print_frontier
from fedminmax.cli.terminal import wide_console
from fedminmax.cli.trained import print_spread, print_trained
from fedminmax.cli.use import print_evaluated
from fedminmax.config.sections import ReportSection
from fedminmax.core.certificate import Certificate
from fedminmax.core.convergence import BY_VALIDATION, WITHIN_GAP, Convergence
from fedminmax.core.messages import Census
from fedminmax.core.privacy.mechanism import Privacy
from fedminmax.exports.effects import effects_of
from fedminmax.findings.card import render_card
from fedminmax.findings.convergence import convergence_text
from fedminmax.findings.frontier import FrontierFile, PointOfFrontier, group_tables
from fedminmax.findings.records import PrivacyOfRun, Results
from fedminmax.findings.seed_spread import spread_over_seeds, spread_table
from fedminmax.findings.training import why_not_certified
from fedminmax.live.watch import LiveModel, LiveRun, LiveSite, Stage
from fedminmax.methods.catalogue import CARDS
from fedminmax.report.live_page import Drawings, render_live
from fedminmax.report.page import build_report, render_advice, render_report
from fedminmax.report.read_run import Run, read_run
from fedminmax.training.round_record import RoundRecord
from tests.exports.saved_models import saved_additive_model, saved_model
from tests.golden.made_up_runs import PRIVACY, write_runs
from tests.runs.run_folders import write_run

FOLDER = Path(__file__).parent
FALLING = Convergence(
    converged=False,
    reason="falling",
    rounds=500,
    measure="worst group's risk",
    risk=0.2,
    slope=-2e-5,
    remaining=0.024,
)
STATES = {
    "converged": replace(FALLING, converged=True, reason="converged", remaining=1e-6),
    "within its gap": replace(FALLING, converged=True, reason=WITHIN_GAP, remaining=1e-6),
    "by validation": replace(FALLING, converged=True, reason=BY_VALIDATION),
    "falling": replace(FALLING, rounds_needed=4000),
    "far": replace(FALLING, remaining=0.19),
    "rising": replace(FALLING, reason="rising", slope=2e-5),
    "swinging": replace(FALLING, reason="swinging"),
    "averaging": replace(FALLING, reason="averaging"),
    "weights": replace(FALLING, reason="weights", weights_gap=0.01),
    "gap": replace(FALLING, reason="gap"),
    "too few rounds": replace(FALLING, reason="too few rounds", risk=None),
}
BLOCKS = ("p", "li", "h1", "h2", "h3", "h4", "tr", "dt", "dd", "caption", "figcaption", "summary")
HIDDEN = ("style", "script", "svg", "title")


class Words(HTMLParser):
    """The words of a page, a block on each line; cells of a table between bars."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = [""]
        self.hidden = 0

    def handle_starttag(self, tag: str, _: object) -> None:
        self.hidden += tag in HIDDEN
        if tag in BLOCKS:
            self.lines.append("")
        if tag in ("td", "th"):
            self.lines[-1] += " | "

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in HIDDEN

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.lines[-1] += data


def words_of(page: str) -> str:
    reader = Words()
    reader.feed(page)
    lines = [" ".join(line.split()) for line in reader.lines]
    return "\n".join(line for line in lines if line)


def check(name: str, parts: Iterable[tuple[str, str]], folder: Path) -> None:
    """Compare a page's text, made of parts, with its file; or write the file."""
    texts = [f"===== {title} =====\n{text.strip()}\n" for title, text in parts]
    lines = "\n".join(texts).replace(str(folder), "RUNS").splitlines()
    found = "\n".join(line.rstrip() for line in lines) + "\n"
    path = FOLDER / name
    if os.environ.get("GOLDEN") == "write":
        path.write_text(found)
    assert found.splitlines() == path.read_text().splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Run]:
    return {name: read_run(path) for name, path in write_runs(folder).items()}


@pytest.fixture
def printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[], None]], str]:
    monkeypatch.setenv("COLUMNS", "110")

    def of(show: Callable[[], None]) -> str:
        show()
        return capsys.readouterr().out

    return of


def models_of(run: Run) -> list[Results]:
    return [model.results for model in (run.chosen, run.baseline) if model]


Printed = Callable[[Callable[[], None]], str]


def test_the_terminal(runs: dict[str, Run], printed: Printed, folder: Path) -> None:
    parts = [
        (f"train, {name}", printed(partial(print_trained, run.chosen.folder, models_of(run))))
        for name, run in runs.items()
    ]
    results = runs["unclear"].chosen.results
    evaluated = printed(
        lambda: print_evaluated(results, results.test, "held-out records", {"x": 3})
    )
    first, second = models_of(runs["certified"])
    other = [own.model_copy(update={"seed": 1}) for own in models_of(runs["unfinished"])]
    spread = spread_over_seeds([[first, second], other])
    table = spread_table(spread, first)
    seeds = printed(partial(print_spread, folder, spread, table, "RUNS/seed-0"))
    check("terminal.txt", [*parts, ("evaluate", evaluated), ("train --seeds", seeds)], folder)


def frontier_of(results: Results, plain: Results) -> FrontierFile:
    """Three models, of which the second is recommended; the boundary is known."""
    risks = ((0.999999, 0.4, 0.56), (0.3, 0.402, 0.521), (0.0, 0.41, 0.52))
    points = []
    for place, (keep, mean, worst) in enumerate(risks):
        mixed = keep * mean + (1.0 - keep) * worst
        points.append(
            PointOfFrontier(
                number=place + 1,
                keep_share=keep,
                round=4 + place,
                mean=mean,
                worst=worst,
                risks=(worst, mean / 2),
                weights=(0.5, 0.5),
                proof=Certificate(upper=mixed, lower=mixed - 1e-5, penalty=0.001, ridge=1e-4),
                results=results if place else plain,
            )
        )
    return FrontierFile(format=1, rounds=9, recommended=2, points=tuple(points))


def test_the_frontier(runs: dict[str, Run], printed: Printed, folder: Path) -> None:
    results, plain = models_of(runs["certified"])
    found = frontier_of(results, plain)
    run = runs["certified"]
    page = render_report(build_report([replace(run, frontier=found)]), "0.1.0")
    assert 'id="run-frontier-title"' in page
    shown = printed(partial(print_frontier, found, run.chosen.folder))
    tables = [
        "\n".join([table.caption, *(" | ".join(line) for line in (table.headers, *table.lines))])
        for table in group_tables(found)
    ]
    assert all(cell in page for table in group_tables(found) for cell in table.headers)
    check("frontier.txt", [("frontier", shown), ("by group", "\n\n".join(tables))], folder)


def test_the_model_card(runs: dict[str, Run], folder: Path) -> None:
    stated = ReportSection(title="Visits", intended_use="Whom to call.", not_for="Insurance.")
    kinds = {"certified": ("no", "yes"), "private": ("no", "yes"), "numbers": ()}
    parts = []
    for name, classes in kinds.items():
        run = runs[name]
        card = render_card(
            run.chosen.results,
            saved_model(classes).encoding,
            census=run.census,
            card=CARDS["fedminmax"],
            section=stated if name == "certified" else ReportSection(),
        )
        parts.append((name, card))
    check("model_card.md", parts, folder)


def test_the_report(runs: dict[str, Run], folder: Path) -> None:
    parts = [
        (name, words_of(render_report(build_report([run]), "VERSION")))
        for name, run in runs.items()
    ]
    saved = saved_additive_model(("no", "yes"))
    additive = replace(runs["certified"], effects=effects_of(saved.model, saved.encoding))
    page = words_of(render_report(build_report([additive]), "VERSION"))
    effects = page.partition("What does the model use?")[2].partition("Could another")[0]
    parts.append(("what an additive model uses", effects))
    both = [runs["certified"], runs["unfinished"]]
    several = words_of(render_report(build_report(both, appendix=True), "VERSION"))
    check("report.txt", [*parts, ("two runs", several)], folder)


def live_round(number: int, certificate: Certificate | None = None) -> RoundRecord:
    return RoundRecord(
        number,
        2.0 * number,
        risks=(0.5 - 0.01 * number, 0.25),
        weights=(0.6, 0.4),
        weights_over="groups",
        participants=(0, 1),
        gradient_evaluations=number,
        certificate=certificate,
    )


def test_the_live_page(folder: Path) -> None:
    proof = Certificate(0.5, 0.4925, 0.01, 1e-4)
    rounds = (live_round(1), live_round(2), live_round(3, proof))
    model = LiveModel("FedMinMax", rounds, planned=10, stage=Stage.RUNNING, may_stop_early=True)
    sites = (
        LiveSite("north", 3, answered=True),
        LiveSite("south", 2, answered=False, reason="south is not connected"),
    )
    local = LiveRun(
        "runs/a",
        Stage.RUNNING,
        "Training.",
        groups=("women", "men"),
        small_groups=("nine people",),
        sites=("north", "south"),
        models=(model,),
        privacy=PrivacyOfRun.model_validate(PRIVACY),
    )
    between = LiveRun(
        "federation",
        Stage.RUNNING,
        "Training.",
        groups=("women", "men"),
        sites=("north", "south"),
        models=(model,),
        site_progress=sites,
        threshold=3,
        privacy=Privacy(epsilon=2.0, delta=1e-5, clip=1.0, rounds=20),
    )
    waiting = LiveRun("runs/b", Stage.WAITING, "Nothing has started yet.")
    named = {"a run of tables": local, "between sites": between, "waiting": waiting}
    parts = [
        (name, words_of(render_live(run, Drawings(), "VERSION"))) for name, run in named.items()
    ]
    check("live_page.txt", parts, folder)


def advice_on(counts: list[list[int]], **more: object) -> Advice:
    names = {"group_names": ["women", "men", "others"][: len(counts[0])]}
    return advise(Census(torch.tensor(counts)), **names | more)  # type: ignore[arg-type]


def _print_advice(advice: Advice) -> None:
    # The console reads the width when it is made.
    print_advice(wide_console(), advice)


def test_the_advice(printed: Printed, folder: Path) -> None:
    costs = [
        RunCost("afl", Rounds(200, 400), 100, MessageBytes(300, 2_000)),
        RunCost("fedminmax-fast", None, None, None, "it needs a linear model"),
    ]
    advices = {
        "every group has its own site": advice_on([[300, 0], [0, 700]]),
        "all sites are alike": advice_on([[30, 70], [300, 700]], chosen="fedavg"),
        "some are out of reach": advice_on(
            [[20, 70, 0], [0, 700, 0]], chosen="afl", test_rows=[9, 100, 0], costs=costs
        ),
        "a regression": advice_on([[60, 40], [0, 700]], loss="squared_error"),
    }
    parts = [(name, printed(partial(_print_advice, advice))) for name, advice in advices.items()]
    page = words_of(render_advice(advices["some are out of reach"], "a.toml", "VERSION"))
    check("advice.txt", [*parts, ("as a page", page)], folder)


def said(run: Run) -> str:
    assert run.findings.verdict is not None
    return f"{run.findings.headline} {run.findings.verdict.reason}"


def test_the_sentences_of_every_branch(runs: dict[str, Run], folder: Path) -> None:
    """Verdicts on convergence, reasons why nothing is certified, and verdicts."""
    parts = [(reason, convergence_text("A", found)) for reason, found in STATES.items()]
    certified = runs["certified"].chosen.results
    fast = certified.method.model_copy(update={"key": "fedminmax-fast"})
    partial_fast = fast.model_copy(update={"participation": 0.5})
    models: dict[str, dict[str, object]] = {
        "a network": {"model": certified.model.model_copy(update={"hidden": (8,)})},
        "Brier": {"loss": "brier"},
        "privacy": {"privacy": PrivacyOfRun.model_validate(PRIVACY)},
        "a mixture": {"model": certified.model.model_copy(update={"members": 2})},
        "another method": {},
        "partial participation": {"method": partial_fast},
        "no ridge": {"method": fast},
    }
    for name, changed in models.items():
        parts.append((name, why_not_certified(certified.model_copy(update=changed))))
    for after in ((0.3, 0.201), (0.37, 0.19), (0.5, 0.2), (0.2, 0.3), (0.2, 0.45)):
        run = read_run(write_run(folder / f"after-{after}", after=after))
        parts.append((f"risks after {after}", said(run)))
    few = read_run(write_run(folder / "few", rows=(7, 49)))
    parts.append(("few records", said(few)))
    check("sentences.txt", parts, folder)
