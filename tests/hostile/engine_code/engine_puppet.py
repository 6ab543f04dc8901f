"""Sends from inside a participant's process whatever a test wants sent, over its own connections.

A request is a JSON file in a folder; what came back is in another beside it.
"""

import json
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

SECONDS_BETWEEN_LOOKS = 0.05
FORGED = "forged_origin"
LOCK = threading.Lock()


def start(folder: Path) -> None:
    """Look for requests in this folder from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    threading.Thread(target=_look, args=(folder,), daemon=True).start()


def _look(folder: Path) -> None:
    while True:
        for path in folder.glob("*.ask"):
            request = json.loads(path.read_text())
            path.unlink()
            threading.Thread(target=_answer, args=(path, request), daemon=True).start()
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _answer(path: Path, request: dict[str, Any]) -> None:
    try:
        said = _send(request)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test is told
        said = {"code": repr(error), "text": ""}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(said))
    partial.rename(path.with_suffix(".got"))


def _send(request: dict[str, Any]) -> dict[str, Any]:
    cells: Any = import_module("nvflare.fuel.f3.cellnet.core_cell")
    messages: Any = import_module("nvflare.fuel.f3.message")
    keys: Any = import_module("nvflare.fuel.utils.fobs").FOBSContextKey
    names = cells.MessageHeaderKey
    (core,) = cells.CoreCell.ALL_CELLS.values()
    message = messages.Message(dict(request["headers"]), _payload(request))
    if request["conn_url"] is not None:
        message.set_header(names.CONN_URL, request["conn_url"])
    if request["origin"] is not None:
        message.set_header(FORGED, request["origin"])
        with LOCK:
            if not hasattr(core, "is_forged"):
                _forge(core, names.ORIGIN)
    target = request["to"]
    sender = core.fobs_ctx[keys.CELL] if request["streamed"] else core
    reply = sender.send_request(
        channel=request["channel"],
        topic=request["topic"],
        target=target,
        request=message,
        timeout=request["seconds"],
    )
    content = reply.payload
    text = getattr(content, "body", content)
    return {"code": str(reply.get_header(names.RETURN_CODE)), "text": str(text)}


def _payload(request: dict[str, Any]) -> Any:
    if request["command"] is None:
        return request["payload"]
    admin: Any = import_module("nvflare.private.admin_defs")
    payload = request["payload"]
    if isinstance(payload, dict) and "hex" in payload:
        payload = bytes.fromhex(payload["hex"])
    command = admin.Message(topic=request["command"], body=payload)
    command.set_headers(request["command_headers"])
    return command


def _forge(core: Any, name: str) -> None:
    """Let messages say that they are another's, if a test wants that."""
    send = core._send_to_endpoint

    def send_as_another(to_endpoint: Any, message: Any) -> Any:
        origin = message.headers.pop(FORGED, None)
        if origin is not None:
            message.set_header(name, origin)
        return send(to_endpoint, message)

    core._send_to_endpoint = send_as_another
    core.is_forged = True
