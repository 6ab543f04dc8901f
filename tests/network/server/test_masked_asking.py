"""What a server of masked sums knows after a restart."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedminmax.core.errors import InputError
from fedminmax.network.server.masked_asking import BEGUN_FILE, MASKED_FILE, Kept, MaskedMemory
from fedminmax.network.wire.endpoints import Endpoint, Question

FIRST = Question(Endpoint.ANSWER, round=1)
SITES = ("north", "south", "west")


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    before = MaskedMemory(tmp_path)
    assert before.kept == Kept()
    before.keep(Kept(SITES, "summary"))
    before.note_begun(FIRST, SITES)
    before.note_begun(FIRST, SITES[:2])
    before.note_begun(FIRST, SITES[:2])
    for later in (before, MaskedMemory(tmp_path)):
        assert later.kept == Kept(SITES, "summary")
        assert later.begun(FIRST) == SITES[:2]
        assert later.begun(replace(FIRST, phase=1)) == ()
    # The same total once more needs no further line.
    assert len((tmp_path / BEGUN_FILE).read_text().splitlines()) == 2


def test_a_line_that_a_crash_cut_off_is_not_part_of_the_next_one(tmp_path: Path) -> None:
    MaskedMemory(tmp_path).note_begun(FIRST, SITES)
    with (tmp_path / BEGUN_FILE).open("a") as file:
        file.write('{"question": {"end')
    later = replace(FIRST, round=2)
    MaskedMemory(tmp_path).note_begun(later, SITES[1:])
    again = MaskedMemory(tmp_path)
    assert (again.begun(FIRST), again.begun(later)) == (SITES, SITES[1:])


def test_a_damaged_file_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / MASKED_FILE).write_text("{")
    with pytest.raises(InputError, match=r"masked.json is damaged; start a new run"):
        MaskedMemory(tmp_path)
