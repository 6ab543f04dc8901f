"""A lock file: one holder at a time, the next one waits as long as it was told to."""

import threading
from pathlib import Path

from fedminmax.core.files import held


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "lock"
    with held(path) as first, held(path) as second:
        assert (first, second) == (True, False)
    with held(path) as again:
        assert again


def test_who_waits_gets_it_when_the_holder_lets_go(tmp_path: Path) -> None:
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
