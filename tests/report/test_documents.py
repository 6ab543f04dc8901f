"""Documents for others: what their schemas and rules ask for, and no small count in any of them."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from fedminmax.report.chai import NAMESPACE
from tests.cli.command import complaint, fedminmax

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
    # The total tells that these are 19, and nobody which of them are 7.
    for name in ("sex other / region N", "sex M / region missing"):
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
    assert "| sex M | 700 |" in by_sex
    by_both = text[text.index("## By sex and region") :]
    line = r"\| sex other / region N \| not shown \| . \| . \| under 2 % of the records \|"
    assert re.search(line, by_both)
    # 707 in region N would tell that they are seven.
    assert "| region N | 700 |" in text
    assert "sex other" not in by_sex
    # Other documents have the total: with it, 12 of unknown category would tell the seven.
    assert "Records of unknown category, not in the tables: not shown." in text
    assert "sex M / region missing and sex other / region N: 19 test records together" in text
    assert not {"7", "12"} & set(re.findall(r"(?<![\d.,])\d+(?![\d.,])", text))
    assert "## By sex and region" in text


def test_no_two_documents_tell_a_small_count_together(tmp_path: Path) -> None:
    """The total is 1,207: whoever knows all counts but that of the seven knows theirs, too."""
    audited(tmp_path, SIZES)
    for kind, name in (("chai", "model_card.xml"), ("annex-iv", "annex_iv.md")):
        assert "sex F / region S: not shown; " in written(tmp_path, kind, name)
    text = written(tmp_path, "ll144", "impact_ratios.md")
    assert "| sex M | 700 |" in text
    assert "| region N | 700 |" in text
    # Also those that 200 would follow from; their rates are told.
    for name in ("sex F", "region S", "sex F / region S"):
        assert re.search(rf"^\| {name} \| not shown \| 0\.\d{{3}} \(", text, re.MULTILINE)
    assert "sex F / region S and sex other / region N: 207 test records together" in text
    assert "Records of unknown category, not in the tables: 0." in text


def test_a_document_is_of_one_run_and_replaces_nothing_unasked(run: Path) -> None:
    assert "is about one run" in complaint("report", "run", "run", "--format", "chai", cwd=run)
    (run / "taken.md").write_text("mine")
    words = ("report", "run", "--format", "annex-iv", "--out", "taken.md")
    assert "taken.md" in complaint(*words, cwd=run)
    assert (run / "taken.md").read_text() == "mine"
