"""Every handler that NVIDIA FLARE 2.9 registers in our processes and that ``rules`` leaves closed.

What is allowed, and what for, is in ``fedminmax.network.flare.rules``. A test compares both with
what the installed engine registers.
"""

from fedminmax.network.flare.rules import Place

# For all topics, or for what is inside: each topic has its own entry, here or among the rules.
BY_THEIR_CONTENT = {
    ("admin", "*"),
    ("aux_communication", "*"),
    ("client_command", "*"),
    ("hci_channel", "*"),
    ("server_command", "*"),
    ("server_parent_listener", "*"),
    # Replies, for whom somebody waits; pieces of longer messages, which have a channel inside.
    ("return_only", "*"),
    ("sm__STREAM", "sm__ACK"),
    ("sm__STREAM", "sm__DATA"),
    ("sm__STREAM", "sm__ERROR"),
}
NETWORK = (
    *("bulk_item", "bulk_test", "cells", "change_root", "comm_config", "config_vars", "conns"),
    *("echo", "heartbeat", "list_pools", "msg_stats", "peers", "process_info", "route"),
    *("show_pool", "speed", "start_route", "stop", "stop_cell", "stress", "url_use"),
)
EVERYWHERE = {
    # Diagnostics: tell about processes, stop them, connect them to another server.
    *(("_net_manager", topic) for topic in NETWORK),
    # Several messages in one, each with its own channel.
    ("cellnet.channel", "bulk"),
    # Keys for encrypted content: all connections are encrypted.
    ("credential_manager", "key_exchange"),
    # Events that others fire here.
    ("aux_communication", "fed.event"),
}
# Files and arrays that are sent, or fetched, beside a message.
OBJECTS = {
    ("aux_communication", "ObjectStreamer.Abort"),
    ("aux_communication", "ObjectStreamer.Request"),
}
RELIABLE = {
    ("aux_communication", "RM.RELIABLE_REPLY"),
    ("aux_communication", "RM.RELIABLE_REQUEST"),
}
SOURCE_FAILURE = ("download_service__", "download_service__source_failure")
# The server registers it when somebody fetches results for the first time.
ON_DEMAND = {SOURCE_FAILURE}
# A site of sites below it.
TASKS = {("server_command", "get_task"), ("server_command", "submit_update")}
CLOSED: dict[Place, set[tuple[str, str]]] = {
    Place.SITE: {*OBJECTS, *TASKS},
    Place.SITE_JOB: {
        *OBJECTS,
        *RELIABLE,
        *TASKS,
        SOURCE_FAILURE,
        ("download_service__", "download_service__download"),
        ("aux_communication", "__do_task__"),
        ("aux_communication", "__job_heartbeat__"),
        ("aux_communication", "__sync_runner__"),
        ("aux_communication", "__task_check__"),
    },
    Place.SERVER: {SOURCE_FAILURE},
    Place.SERVER_JOB: {*OBJECTS, *RELIABLE, ("collab", "call")},
}
# At a site, by the topic inside an ``admin`` message.
SITE_COMMANDS = {
    "info.show_stats",
    "info.show_errors",
    "info.reset_errors",
    "resource_manager.report_resources",
    "sys.configure_site_log",
    "sys.info",
    "sys.report_env",
    "sys.report_version",
    "sys.shell",
    "train.abort_task",
    "train.configure_job_log",
    "train.delete_run",
    "train.get_scopes",
    "train.restart",
    "train.shutdown",
}
# In a site's job, by the topic of ``client_command``.
JOB_COMMANDS = {
    "abort_task",
    "check_status",
    "configure_job_log",
    "reset_errors",
    "show_errors",
    "show_stats",
    "shutdown",
}
# In the server's job, by the topic of ``server_command``.
SERVER_JOB_COMMANDS = {
    "configure_job_log",
    "get_errors",
    "get_run_info",
    "heartbeat",
    "reset_errors",
    "server_state",
    "show_stats",
    "shutdown",
}
# At the server, by the first word of a person's command.
SERVER_COMMANDS = {
    "add_study_site",
    "add_study_user",
    "admin_check_status",
    "bulk",
    "cat",
    "cells",
    "change_root",
    "clone_job",
    "configure_job_log",
    "configure_site_log",
    "conns",
    "dead",
    "delete_job",
    "delete_workspace",
    "disable_client",
    "download_job_components",
    "enable_client",
    "get_job_log",
    "grep",
    "head",
    "list_job",
    "list_pools",
    "list_sessions",
    "list_studies",
    "ls",
    "msg_stats",
    "peers",
    "process_info",
    "pwd",
    "register_study",
    "remove_client",
    "remove_study",
    "remove_study_site",
    "remove_study_user",
    "report_env",
    "report_resources",
    "report_version",
    "reset_errors",
    "restart",
    "route",
    "show_comm_config",
    "show_config_vars",
    "show_errors",
    "show_pool",
    "show_scopes",
    "show_stats",
    "show_study",
    "shutdown",
    "speed",
    "stop_cell",
    "stop_net",
    "stress",
    "sys_info",
    "tail",
    "url_use",
}


def closed_at(place: Place) -> set[tuple[str, str]]:
    """The channels and topics that nobody may send to a process of this kind."""
    return EVERYWHERE | CLOSED[place]
