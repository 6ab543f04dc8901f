"""A lock file: one site at a time, the next one waits as long as it was told to."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedminmax.core.files import held


def test_one_site_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with held(path) as first, held(path) as second:
        assert (first, second) == (True, False)
    with held(path) as again:
        assert again


def test_who_waits_gets_it_when_the_site_lets_go(tmp_path: Path) -> None:
    path, found = tmp_path / "lock", []

    def wait() -> None:
        with held(path, 60.0) as ours:
            found.append(ours)

    waiting = threading.Thread(target=wait)
    with held(path):
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        assert found == []
    waiting.join(30.0)
    assert found == [True]


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    program = (
        "import sys; from pathlib import Path; from fedminmax.core.files import held\n"
        "with held(Path(sys.argv[1])) as ours: print(ours, flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with held(path) as ours:
            assert not ours
        other.kill()
    with held(path) as ours:
        assert ours


def test_an_error_in_the_block_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ZeroDivisionError), held(path):
        raise ZeroDivisionError
    with held(path) as again:
        assert again


def test_another_thread_may_let_go(tmp_path: Path) -> None:
    """A generator that is not used up ends wherever the garbage collector runs."""
    path = tmp_path / "lock"
    holding = held(path)
    assert holding.__enter__()
    thread = threading.Thread(target=holding.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    with held(path) as again:
        assert again
