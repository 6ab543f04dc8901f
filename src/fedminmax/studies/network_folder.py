"""What a run over a network leaves: the same folder, files and figures as a run in one process.

`rounds.jsonl` has each round's risks and weights; `sites.jsonl` has who took part in it, who did
not and why, times and bytes.
"""

from pathlib import Path

from fedminmax.core.errors import InputError
from fedminmax.core.files import write_copy, write_json
from fedminmax.data.tables.config import TableConfig
from fedminmax.data.tables.config_sections import ReportSection
from fedminmax.federation.agreement import AGREEMENT_FILE, read_agreement
from fedminmax.federation.checkpoint import checkpoint_paths
from fedminmax.federation.network_log import ROUNDS_FILE
from fedminmax.federation.network_plan import NetworkPlan
from fedminmax.report.model_card import write_card
from fedminmax.report.model_file import FILE_NAME, save_model
from fedminmax.report.round_records import write_rounds
from fedminmax.report.run_folder_records import CensusFile, Results, record_as_json
from fedminmax.report.table_results import write_results
from fedminmax.studies.fetched_runs import FinishedRun, finished_runs
from fedminmax.studies.network_results import census_of_sites, results_of_runs
from fedminmax.studies.network_tests import measured_tests

SITES_FILE = "sites.jsonl"


def collect_network_run(
    fetched: Path, plan: NetworkPlan, config: TableConfig, folder: Path
) -> list[Results]:
    """Write the run folder from what the coordinator fetched; return each run's results."""
    agreed = read_agreement(fetched / AGREEMENT_FILE)
    if agreed is None:
        raise InputError(f"{fetched} has no {AGREEMENT_FILE}; the sites never agreed")
    runs = finished_runs(fetched, plan, agreed, config, folder)
    tests = measured_tests(fetched, plan, config, [run.saved for run in runs])
    census = census_of_sites(plan, agreed, tests)
    results = results_of_runs(runs, plan, fetched, tests, census)
    # The method's run last: its results say that the whole folder is done.
    for run, own in reversed(list(zip(runs, results, strict=True))):
        _write(run, own, census, config.report)
    return results


def _write(run: FinishedRun, results: Results, census: CensusFile, words: ReportSection) -> None:
    """Write a run's files; the results last, because they say that it is done."""
    folder = run.table_run.folder
    write_rounds(folder / "rounds.jsonl", run.records(census.holders))
    current, _ = checkpoint_paths(run.fetched)
    for path, name in ((run.fetched / ROUNDS_FILE, SITES_FILE), (current, current.name)):
        write_copy(path, folder / name)
    write_json(folder / "census.json", record_as_json(census))
    if run.beside is not None:
        save_model(folder / f"{run.beside.iterate}.safetensors", run.beside)
    save_model(folder / FILE_NAME, run.saved)
    write_card(folder, run.saved, results, census, run.table_run.card, words)
    write_results(folder, results)
