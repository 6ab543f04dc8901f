"""Real processes: a site that runs other code and answers what cannot be true, round by round."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedminmax.config.planned_runs import PlannedRun
from fedminmax.config.read import read_config
from fedminmax.core.messages import Sums
from fedminmax.network.flare.local import LocalFederation
from tests.integration.disturbed_runs import finished_rounds
from tests.integration.other_code.bad_answers import BAD_ANSWERS, PATIENT
from tests.integration.other_code_at_south import variables_for
from tests.network.network_problem import AT_ONCE, SITES, plan_of

# The engine leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
ROUNDS = 12
ROUND_OF_THE_LARGE_STEP = 2
REASONS = {
    ROUND_OF_THE_LARGE_STEP: "with its rows and this model",
    4: "its work failed; the reason is in this site's log",
    5: "a step with NaN or infinity",
    6: "a group_loss with NaN or infinity",
    7: "further numbers, expected 10 and 0",
    8: "step as torch.float64 of shape (1, ",
    9: "a negative count of rows of a group",
    11: "but its census has",
}


@pytest.fixture(scope="module", autouse=True)
def other_code_at_one_site() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in variables_for("bad_answers").items():
            environment.setenv(name, value)
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
            assert entry.sites.took_part == ("north", "west")
            assert list(entry.sites.refused) == ["south"]
            assert entry.sites.refused["south"].startswith("south")
            assert REASONS[entry.round] in entry.sites.refused["south"]
            assert PATIENT not in entry.sites.refused["south"]
        else:
            assert entry.sites.took_part == SITES
            assert not entry.sites.refused
