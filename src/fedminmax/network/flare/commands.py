"""Commands that the engine would carry out for others: those that ``rules`` names, and no others.

Commands come inside messages of one kind, so the allow-list of messages cannot tell them apart. At
a site the server sends them; at the server, people do. The engine's own rules about roles hold at
the server, for the commands that are left.
"""

from typing import Any

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.hci.server.constants import ConnProps
from nvflare.fuel.hci.server.reg import ServerCommandRegister
from nvflare.private.admin_defs import error_reply
from nvflare.private.defs import RequestHeader, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent

from fedminmax.network.flare import rules
from fedminmax.network.flare.allow_list import log_refusal

REFUSED = "this command is refused"
_engine_register = FedAdminAgent.register_processor
_engine_dispatch = FedAdminAgent._dispatch_request
_engine_do = ServerCommandRegister._do_command


def register_allowed(agent: Any, processor: Any) -> None:
    """Give a site's main process no processor of a command that is closed: there is no shell."""
    if set(processor.get_topics()) <= {*rules.SITE_COMMANDS, *rules.SITE_COMMANDS_OF_JOBS}:
        _engine_register(agent, processor)


def dispatch_allowed(agent: Any, request: Any) -> Any:
    """Do what the engine does with a command at a site, if it is one of the named."""
    command = request.payload
    origin = request.get_header(MessageHeaderKey.ORIGIN)
    topic = getattr(command, "topic", None)
    problem = command_problem(origin, topic, getattr(command, "headers", None))
    if problem is None:
        return _engine_dispatch(agent, request)
    log_refusal(
        agent.cell.get_fqcn(), str(origin), origin, f"command {ascii(topic)[:100]}", problem
    )
    return new_cell_message({}, error_reply(REFUSED))


def command_problem(origin: object, topic: object, headers: object) -> str | None:
    """Return why a command is refused; None if it is not."""
    of_job = origin != rules.ROOT
    if topic not in (rules.SITE_COMMANDS_OF_JOBS if of_job else rules.SITE_COMMANDS):
        return "not allowed"
    number = headers.get(RequestHeader.JOB_ID) if isinstance(headers, dict) else None
    if number is None:
        return "it has no job" if of_job else None
    if not isinstance(number, str) or rules.JOB_NUMBER.fullmatch(number) is None:
        # The engine makes folders, and words of a command, of these.
        return "its job has no number"
    if of_job and str(origin).partition(".")[2] != number:
        return "it is about another job"
    return None


def do_allowed(register: Any, connection: Any, command: str) -> None:
    """Do what the engine does with a person's command, if it is one of the named."""
    name = command.split(maxsplit=1)[0] if command.strip() else ""
    entries = register.get_command_entries(name)
    if entries and all(entry.name in rules.SERVER_COMMANDS for entry in entries):
        _engine_do(register, connection, command)
        return
    headers = connection.get_prop(ConnProps.CMD_HEADERS) or {}
    person = headers.get(MessageHeaderKey.ORIGIN)
    log_refusal(rules.ROOT, str(person), person, f"command {ascii(name)[:100]}", "not allowed")
    connection.append_error(REFUSED)
