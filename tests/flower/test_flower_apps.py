"""A ServerApp and ClientApps with Flower's own messages, in this process."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Error, Message

from fedminmax.core.errors import InputError
from fedminmax.flower import Rows, client_app
from fedminmax.flower.client import name_of
from fedminmax.flower.server import GridTransport
from fedminmax.network.site.journal import KEPT_FOLDER, Event, read_journal
from fedminmax.network.wire import calls
from fedminmax.network.wire.calls import Endpoint
from tests.flower.flower_in_process import (
    SITES,
    GridHere,
    answering,
    assert_same_run,
    make_rows,
    simulate,
    write_config,
)


def test_a_flower_run_is_the_simulations(tmp_path: Path) -> None:
    config = write_config(tmp_path, "additive")
    here = GridHere(tmp_path, client_app())
    here.run(config, tmp_path / "run", sites=", ".join(SITES))
    # Sites agree on bins and smoothing before the first round.
    assert {"query.count_cells", "query.smooth", "query.measure"} <= {*here.asked}
    assert_same_run(tmp_path / "run", simulate(config, tmp_path / "simulated"))
    asked = len([kind for kind in here.asked if kind != "query.present"])
    for site in SITES:
        entries = read_journal(tmp_path / f"{site}-kept" / KEPT_FOLDER)
        assert 3 * len([entry for entry in entries if entry.event is Event.SENT]) == asked


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    config = write_config(tmp_path)

    class Stopping(GridHere):
        def reply(self, message: Message) -> Message:
            if self.asked.count("query.answer") > 6:
                raise KeyboardInterrupt
            return super().reply(message)

    with pytest.raises(KeyboardInterrupt):
        Stopping(tmp_path, client_app()).run(config, tmp_path / "run")
    # Flower gives a new run a new state.
    again = GridHere(tmp_path, client_app())
    again.run(config, tmp_path / "run")
    assert_same_run(tmp_path / "run", simulate(config, tmp_path / "simulated"))
    once = GridHere(tmp_path, client_app())
    once.run(config, tmp_path / "run")
    assert {*once.asked} == {"query.present"}


def test_a_site_that_fails_is_named_and_its_error_stays(tmp_path: Path) -> None:
    config = write_config(tmp_path)

    def load(context: Any) -> Rows:
        if name_of(context) == "south":
            raise KeyError("a value of a record")
        return make_rows(name_of(context))

    here = GridHere(tmp_path, client_app(load))
    here.run(config, tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text(encoding="utf-8"))
    assert "south: its work failed; the reason is in this site's log" in str(results["warnings"])
    assert "a value of a record" not in str(results)


@pytest.mark.parametrize(
    ("record", "message", "failure"),
    [
        ({"message": b"sums"}, b"sums", None),
        ({"message": 1}, 1, None),
        ({"other": 1}, None, None),
        ({"refused": "no " * 500}, None, "south: no no"),
        (None, None, "south: it raised"),
    ],
)
def test_whatever_a_node_replies_is_an_answer(
    record: dict[str, Any] | None, message: object, failure: str | None, tmp_path: Path
) -> None:
    class Lying(GridHere):
        def reply(self, message: Message) -> Message:
            if record is None:
                return Message(Error(1, "it raised"), reply_to=message)
            return answering(record, message)

    grid: Any = Lying(tmp_path, client_app())
    (answer,) = GridTransport(grid, {"south": 11}, 1.0)(["south"], Endpoint.PREPARE, {})
    assert answer.message == message
    assert (answer.failure or "").startswith(failure or "")
    assert (answer.failure is None) == (failure is None)
    assert len(answer.failure or "") <= 310


def test_a_node_that_is_gone_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "POLL_SECONDS", 0.0)

    class Silent(GridHere):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            assert len([*message_ids]) == 1
            self.contexts.pop(11, None)
            return []

    silent = Silent(tmp_path, client_app())
    gone = GridTransport(cast("Any", silent), {"south": 11}, 60.0)
    (answer,) = gone(["south"], Endpoint.PREPARE, {})
    assert answer.late
    assert answer.failure == "south is no longer connected"


def test_masks_and_sites_that_are_not_there_are_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    here = GridHere(tmp_path, client_app())
    here.contexts[10].node_config["site"] = "south"
    with pytest.raises(InputError, match="several SuperNodes call themselves 'south'"):
        here.run(config, tmp_path / "run")
    text = config.read_text(encoding="utf-8") + "[federation]\nsecure_aggregation = true\n"
    config.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="secure_aggregation = true is not offered with Flower"):
        here.run(config, tmp_path / "run")


def test_a_node_without_a_table_or_a_folder_says_so(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    for name in ("data", "folder"):
        here = GridHere(tmp_path, client_app())
        for context in here.contexts.values():
            del context.node_config[name]
        with pytest.raises(InputError, match="names no table or no folder of its own"):
            here.run(config, tmp_path / name)


def test_columns_of_x_are_the_configurations(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    rows = make_rows("north")
    wide = Rows(np.hstack([rows.x, rows.x]), rows.y, rows.group)
    with pytest.raises(InputError, match=r"x has the shape \(150, 4\), but .* 2 columns"):
        GridHere(tmp_path, client_app(lambda _: wide)).run(config, tmp_path / "run")
