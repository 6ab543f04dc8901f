"""Other code for a site or the server of real processes: the environment to start them in."""

import os
from dataclasses import dataclass
from pathlib import Path

from tests.integration.other_code.held_rounds import FOLDER_VARIABLE, SLOW

OTHER_CODE = Path(__file__).parent / "other_code"


def variables_for(module: str, at_server: str | None = None) -> dict[str, str]:
    """What the environment must have so that the site, and the server, run these modules."""
    paths = [str(OTHER_CODE), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(paths), "FEDMINMAX_TEST_CODE": module}
    return variables | ({} if at_server is None else {"FEDMINMAX_TEST_SERVER_CODE": at_server})


@dataclass(frozen=True)
class HeldRounds:
    """The rounds in which the site waits with its answer until the test lets it go on."""

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """What the environment of server and sites must have."""
        return variables_for("held_rounds") | {FOLDER_VARIABLE: str(self.folder)}

    def hold(self, *numbers: int) -> None:
        """Let no reply to these rounds out."""
        for number in numbers:
            (self.folder / str(number)).touch()

    def let_go(self, number: int) -> None:
        """Let the reply to this round out."""
        (self.folder / str(number)).unlink()

    def slow_down(self) -> None:
        """Let every round take some time."""
        (self.folder / SLOW).touch()

    def speed_up(self) -> None:
        """Let rounds take no longer than they must."""
        (self.folder / SLOW).unlink()
