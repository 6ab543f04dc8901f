"""Documents for others: what their schemas and rules ask for, and no small count in any of them."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from fedminmax.findings.text import NOTHING
from fedminmax.report.page import build_report
from fedminmax.report.read_run import read_run
from fedminmax.report.settings import csv_of
from tests.cli.command import complaint, fedminmax

NAMESPACE = "https://mc.chai.org/v0.2/schema.xsd"
# The order of the schema v0.2 at mc.chai.org, without what may be missing.
SECTIONS = {
    "BasicInfo": "ModelName ModelDeveloper DeveloperContact",
    "ReleaseInfo": "ReleaseStage ReleaseDate ReleaseVersion GlobalAvailability",
    "ModelSummary": "Summary Keywords",
    "UsesAndDirections": "IntendedUseAndWorkflow PrimaryIntendedUsers HowToUse "
    "TargetedPatientPopulation CautionedOutOfScopeSettings",
    "Warnings": "KnownRisksAndLimitations KnownBiasesOrEthicalConsiderations ClinicalRiskLevel",
    "TrustIngredients": "AISystemFacts TransparencyInformation",
    "KeyMetrics": "UsefulnessUsabilityEfficacy FairnessEquity SafetyReliability",
    "Resources": "PeerReviewedPublications PatientConsentOrDisclosure",
    "Bibliography": "",
}
METRIC = (
    "MetricGoal Results Interpretation TestType TestingDataDescription "
    "ValidationProcessAndJustification"
)
SIZES = {("F", "N"): 300, ("F", "S"): 200, ("M", "N"): 400, ("M", "S"): 300, ("X", "N"): 7}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sexes and two regions: F 300 + 200, M 400 + 300, X 7 + 0; 12 without a region."""
    return audited(tmp_path_factory.mktemp("documents"), SIZES | {("M", ""): 12})


def audited(folder: Path, sizes: dict[tuple[str, str], int]) -> Path:
    """Write records of these sexes and regions, and measure their scores."""
    random = np.random.default_rng(0)
    lines = [key for key, size in sizes.items() for _ in range(size)]
    chance = np.array([{"F": 0.3, "M": 0.5, "X": 0.5}[sex] for sex, _ in lines])
    scores = np.clip(chance + random.normal(0, 0.15, len(lines)), 0.01, 0.99)
    hired = np.where(random.random(len(lines)) < scores, "yes", "no")
    table = pl.DataFrame(
        {"sex": [own[0] for own in lines], "region": [own[1] for own in lines]}
    ).with_columns(pl.Series("score", scores), pl.Series("hired", hired))
    table.write_csv(folder / "all.csv")
    words = ("all.csv", "--predictions", "score", "--target", "hired", "--groups", "sex,region")
    done = fedminmax("audit", *words, "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def written(run: Path, kind: str, name: str) -> str:
    done = fedminmax("report", "run", "--format", kind, "--force", cwd=run)
    assert done.returncode == 0, done.stderr
    text = (run / name).read_text(encoding="utf-8")
    assert f"{text.count('Open question:')} open questions for you to answer" in done.stdout
    # The 1 of 1,219 is no count.
    assert re.search(r"records?[^.|]*: [1-9](?!,?\d)", text) is None
    return text


def test_chais_card_has_every_required_element_in_its_order(run: Path) -> None:
    root = ElementTree.fromstring(written(run, "chai", "model_card.xml"))  # noqa: S314 - our own
    space = f"{{{NAMESPACE}}}"
    assert root.tag == f"{space}AppliedModelCard"
    assert [own.tag.removeprefix(space) for own in root] == list(SECTIONS)
    for own, names in zip(root, SECTIONS.values(), strict=True):
        assert [inner.tag.removeprefix(space) for inner in own] == names.split()
    for metric in root.iter():
        if metric.tag.removeprefix(space) in SECTIONS["KeyMetrics"].split():
            assert [own.tag.removeprefix(space) for own in metric] == METRIC.split()
            values = [own.text for own in metric.iter(f"{space}ValueJson")]
            assert values
            assert all(json.loads(own or "") for own in values)
    text = "".join(root.itertext())
    # The total tells that these are 407, and nobody how many of them are the few.
    for name in ("sex other / region N", "sex M / region N"):
        assert f"{name}: not shown;" in text
    assert "all: 1,219" in text


def test_annex_iv_has_its_nine_points_and_lists_what_is_open(run: Path) -> None:
    text = written(run, "annex-iv", "annex_iv.md")
    points = re.findall(r"^## (\d) \w", text, re.MULTILINE)
    assert points == [*"123456789"]
    count = int(re.findall(r"^## (\d+) open questions", text, re.MULTILINE)[0])
    assert text.count("Open question:") == count
    table = text[text.index(f"## {count} open questions") :]
    assert len(re.findall(r"^\| \d \| ", table, re.MULTILINE)) == count
    assert "false negative rate of “yes”" in text.replace("False", "false")


def test_impact_ratios_are_those_of_the_records(run: Path) -> None:
    text = written(run, "ll144", "impact_ratios.md")
    table = pl.read_csv(run / "all.csv").filter(pl.col("region").is_not_null())
    rates = {
        sex: float((table.filter(pl.col("sex") == sex)["score"] > 0.5).to_numpy().mean())
        for sex in ("F", "M")
    }
    ratio = rates["F"] / rates["M"]
    by_sex = text[text.index("## By sex\n") : text.index("## By region\n")]
    assert f"| sex F | 500 | {rates['F']:.3f}" in by_sex
    assert f"| {ratio:.2f} (" in by_sex
    assert "below four fifths" in by_sex
    assert "| sex M | not shown |" in by_sex
    by_both = text[text.index("## By sex and region") :]
    line = r"\| sex other / region N \| not shown \| . \| . \| under 2% of the records \|"
    assert re.search(line, by_both)
    # 700 in region N would tell the 400, and these the seven.
    assert "| region N | not shown |" in text
    assert "| region S | 500 |" in text
    assert "sex other" not in by_sex
    assert "Records of unknown category, not in the tables: 12." in text
    assert "sex M / region N and sex other / region N: 407 test records together" in text
    assert not {"7", "400", "700", "712"} & set(re.findall(r"(?<![\d.,])\d+(?![\d.,])", text))
    assert "## By sex and region" in text


def test_no_two_documents_tell_a_small_count_together(tmp_path: Path) -> None:
    """The total is 1,207: whoever knows all counts but that of the seven knows theirs, too."""
    audited(tmp_path, SIZES)
    for kind, name in (("chai", "model_card.xml"), ("annex-iv", "annex_iv.md")):
        assert "sex M / region N: not shown; " in written(tmp_path, kind, name)
    text = written(tmp_path, "ll144", "impact_ratios.md")
    assert "| sex F | 500 |" in text
    assert "| region S | 500 |" in text
    # Also those that 400 would follow from; their rates are told as far as they do not tell it.
    for name in ("sex M", "region N", "sex M / region N"):
        assert re.search(rf"^\| {name} \| not shown \| 0\.\d{{2}} \(", text, re.MULTILINE)
    assert "sex M / region N and sex other / region N: 407 test records together" in text
    assert "Records of unknown category, not in the tables: 0." in text


def test_a_document_is_of_one_run_and_replaces_nothing_unasked(run: Path) -> None:
    assert "is about one run" in complaint("report", "run", "run", "--format", "chai", cwd=run)
    (run / "taken.md").write_text("mine")
    words = ("report", "run", "--format", "annex-iv", "--out", "taken.md")
    assert "taken.md" in complaint(*words, cwd=run)
    assert (run / "taken.md").read_text() == "mine"


def test_no_page_tells_how_few_of_a_group_are_of_a_class(tmp_path: Path) -> None:
    """Of 60 "M" 54 are not hired: with the 60, both 54 and 3/54 would tell that 6 are."""
    sizes = {("F", "no"): 150, ("F", "yes"): 150, ("M", "no"): 54, ("M", "yes"): 6}
    sizes |= {("X", "no"): 80, ("X", "yes"): 70}
    lines = [key for key, size in sizes.items() for _ in range(size)]
    # Every 18th "no" is a false alarm, every second "yes" is missed.
    score = [float(i % 18 == 0 if own == "no" else i % 2) for i, (_, own) in enumerate(lines)]
    other = [float(i % 9 == 0 if own == "no" else i % 3 > 0) for i, (_, own) in enumerate(lines)]
    columns = {"sex": [sex for sex, _ in lines], "hired": [own for _, own in lines]}
    pl.DataFrame(columns | {"score": score, "other": other}).write_csv(tmp_path / "all.csv")
    words = ("all.csv", "--predictions", "score", "--against", "other", "--target", "hired")
    done = fedminmax("audit", *words, "--groups", "sex", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert fedminmax("report", "run", cwd=tmp_path).returncode == 0
    report = build_report([read_run(tmp_path / "run")])
    csv = [line.split(",") for line in csv_of(report.parts[0].run).splitlines()]
    measures = {
        group: {own[3] for own in csv if own[1] == group} for group in {own[1] for own in csv}
    }
    rates = {own for own in measures["sex F"] if "“yes”" in own}
    assert len(rates) == 5
    assert measures["sex M"] == measures["sex F"] - rates
    # 150 of "F" would follow from 226 of all and 70 of "X": no rate that tells it.
    told = [own[4] for own in csv if own[1] == "sex F" and own[3] in rates]
    assert all(len(value.partition(".")[2]) == 2 for value in told)
    parts = {part.name: part for part in report.parts[0].details}
    for table in parts["mistakes"].tables:
        cells = {line[0]: line for line in table.lines}
        assert cells["sex X"][1] in ("70", "80")
        assert (cells["sex M"][1], cells["sex F"][1]) == (NOTHING, NOTHING)
        assert cells["sex M"][-1].startswith("too few")
    for table in parts["measures"].tables[:2]:
        line = next(line for line in table.lines if line[0] == "sex M")
        told = [cell for cell, header in zip(line, table.headers, strict=True) if "“yes”" in header]
        assert {*told} == {NOTHING}
    card = written(tmp_path, "chai", "model_card.xml")
    assert "rate of “yes”, sex F" in card
    assert "rate of “yes”, sex M" not in card
    annex = written(tmp_path, "annex-iv", "annex_iv.md")
    tables = re.findall(r"rate of “yes” \|\n(?:\|.*\n)+", annex)
    assert len(tables) == 3
    assert all("| sex F |" in table and "| sex M |" not in table for table in tables)
    text = written(tmp_path, "ll144", "impact_ratios.md")
    assert f"| sex M | 60 | {NOTHING} | {NOTHING} | fewer than 10 are of one class |" in text
