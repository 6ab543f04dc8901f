"""Real processes: a site that runs other code and answers what cannot be true, round by round."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.core.messages import Sums
from fedminmax.data.tables.config import read_config
from fedminmax.federation.flare_local import LocalFederation
from fedminmax.federation.network_plan import PlannedRun
from tests.federation.network_problem import AT_ONCE, SITES, plan_of
from tests.integration.disturbed_runs import finished_rounds
from tests.integration.other_code.bad_answers import BAD_ANSWERS, PATIENT, TIMES_TOO_LARGE

# The engine leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
OTHER_CODE = Path(__file__).parent / "other_code"
ROUNDS = 12
ROUND_OF_THE_LARGE_STEP = 2
REASONS = {
    ROUND_OF_THE_LARGE_STEP: "times as long as the others', at most 1,000 times is allowed",
    4: "its work failed; the reason is in this site's log",
    5: "a step with NaN or infinity",
    6: "a group_loss with NaN or infinity",
    7: "most others",
    8: "step as torch.float64 of shape (1, ",
    9: "a negative count of rows of a group",
    11: "where its census has",
}


@pytest.fixture(scope="module", autouse=True)
def other_code_at_one_site() -> Iterator[None]:
    """Every process that the federation starts looks for code in this folder first."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(OTHER_CODE), prepend=os.pathsep)
        yield


def test_each_bad_answer_is_named_and_left_out_and_the_run_goes_on(
    federation: LocalFederation, folder: Path
) -> None:
    assert REASONS.keys() == BAD_ANSWERS.keys()
    plan = plan_of(
        read_config(folder / "fedminmax.toml"), [PlannedRun("fedminmax", {}, ROUNDS)], AT_ONCE
    )

    def without_bad_answers(number: int, site: str, reply: Sums) -> Sums | None:
        return None if site == "south" and number in BAD_ANSWERS else reply

    list(federation.run(plan))
    for entry in finished_rounds(federation, plan, folder, without_bad_answers):
        if entry.round in REASONS:
            assert entry.took_part == ("north", "west")
            assert list(entry.refused) == ["south"]
            assert entry.refused["south"].startswith("south")
            assert REASONS[entry.round] in entry.refused["south"]
            assert PATIENT not in entry.refused["south"]
        else:
            assert entry.took_part == SITES
            assert not entry.refused


def test_how_large_a_step_may_be_is_a_setting(federation: LocalFederation, folder: Path) -> None:
    config = read_config(folder / "fedminmax.toml")
    patience = replace(AT_ONCE, largest_step_ratio=1e9)
    plan = plan_of(config, [PlannedRun("fedminmax", {}, ROUND_OF_THE_LARGE_STEP + 1)], patience)
    plan = replace(plan, run="large-steps")

    def with_the_large_step(number: int, site: str, reply: Sums) -> Sums:
        large = site == "south" and number == ROUND_OF_THE_LARGE_STEP
        return replace(reply, step=reply.step * TIMES_TOO_LARGE) if large else reply

    list(federation.run(plan))
    rounds = finished_rounds(federation, plan, folder, with_the_large_step)
    assert [entry.took_part for entry in rounds] == [SITES] * plan.runs[0].rounds
    assert not any(entry.refused for entry in rounds)
