"""The run folder of a run with masked sums: totals alone, and words that say so."""

import json
from pathlib import Path

import pytest

from fedminmax.config.overrides import Overrides
from fedminmax.core.errors import InputError
from fedminmax.network.server.run import run_plan
from fedminmax.network.wire.plan import ALL_SITES
from fedminmax.network.wire.site_rules import SiteRules
from fedminmax.runs.federation import NETWORK_FOLDER, FederationRun, open_federation_run, plan_of
from fedminmax.runs.network import collect_network_run
from tests.cli.in_process import run_here
from tests.network.masked_problem import FourSites, listed_config
from tests.network.network_problem import SITES


def test_a_masked_run_shows_totals_and_says_so(tmp_path: Path) -> None:
    listed_config(tmp_path)
    config = tmp_path / "fedminmax.toml"
    config.write_text(config.read_text() + "[federation]\nsecure_aggregation = true\n")
    folder = tmp_path / "run"
    record = FederationRun(
        "", config, kit=None, sites=SITES, site_rules=SiteRules(round_timeout=0.0)
    )
    record = open_federation_run(folder, record)
    content = record.read_config()
    plan, fetched = plan_of(record, content), folder / NETWORK_FOLDER / "results"
    assert run_plan(plan, FourSites(tmp_path), fetched).error is None
    collect_network_run(fetched, plan, content, folder)
    census = json.loads((folder / "census.json").read_text())
    assert census["sites"] == [ALL_SITES]
    assert len(census["train"]) == 1
    results = json.loads((folder / "results.json").read_text())
    assert results["secure_aggregation"] == 3
    assert [own["site"] for own in results["sites"]] == list(SITES)
    assert "reach" not in results
    # Keys and shares of masks travel beside the model: no size that was computed without them.
    cost = results["cost"]
    assert cost["bytes_down"] == cost["counted_down"] > 0
    assert cost["bytes_up"] == cost["counted_up"] > 0
    words = "the server learns only totals over at least 3 sites"
    assert any(words in note for note in results["notes"])
    assert words in (folder / "model_card.md").read_text()
    run_here("report", folder, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert words in page


@pytest.mark.parametrize(
    ("change", "sites", "reason"),
    [
        (('name = "fedminmax"', 'name = "afl"'), SITES, "'afl' needs each site's own loss"),
        (("", ""), SITES[:2], "2 sites take part"),
        (('values = { sex = ["Female", "Male"] }', ""), SITES, "values of 'sex' are not listed"),
    ],
)
def test_what_cannot_be_masked_is_refused_before_anything_starts(
    change: tuple[str, str], sites: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    listed_config(tmp_path)
    config = tmp_path / "fedminmax.toml"
    config.write_text(config.read_text().replace(*change) if change[0] else config.read_text())
    record = FederationRun(
        "",
        config,
        kit=None,
        sites=sites,
        site_rules=SiteRules(),
        overrides=Overrides(secure_aggregation=True),
    )
    with pytest.raises(InputError, match=f"secure_aggregation: .*{reason}"):
        open_federation_run(tmp_path / "run", record)
    assert not (tmp_path / "run").exists()
