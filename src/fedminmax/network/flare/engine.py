"""What we use of NVIDIA FLARE that is internal: all of it, and nothing else may import it.

A release may rename any of these. A test looks for each, and another compares what ``patches``
replaces with what was read. Documented interfaces are imported where they are used.
"""

from nvflare.app_common.job_launcher import process_launcher
from nvflare.collab.api.exceptions import RunAborted
from nvflare.fuel.f3.cellnet.connector_manager import ConnectorManager
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, MessageType
from nvflare.fuel.f3.communicator import driver_mgr
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.tcp_driver import TcpDriver, TcpStreamServer
from nvflare.fuel.f3.streaming import byte_streamer
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.byte_streamer import TxTask
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)
from nvflare.fuel.hci.server.constants import ConnProps
from nvflare.fuel.hci.server.reg import ServerCommandRegister
from nvflare.fuel.utils.buffer_list import ConsumableBufferList
from nvflare.fuel.utils.fobs import FOBSContextKey, fobs, lobs
from nvflare.lighter.prov_utils import prepare_builders
from nvflare.lighter.provision import prepare_project
from nvflare.lighter.provisioner import Provisioner
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from nvflare.lighter.utils import verify_folder_signature_and_get_signers
from nvflare.private.admin_defs import error_reply
from nvflare.private.defs import RequestHeader, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.utils.app_deployer import AppDeployer
from nvflare.utils.process_utils import ProcessAdapter

__all__ = [
    "NVFLARE_SIG_FILE",
    "NVFLARE_SUBMITTER_CRT_FILE",
    "STREAM_ACK_TOPIC",
    "STREAM_CHANNEL",
    "STREAM_DATA_TOPIC",
    "STREAM_ERROR_TOPIC",
    "AppDeployer",
    "CellChannel",
    "ConnProps",
    "ConnectorManager",
    "ConsumableBufferList",
    "CoreCell",
    "DriverParams",
    "FOBSContextKey",
    "FedAdminAgent",
    "MessageHeaderKey",
    "MessageType",
    "ProcessAdapter",
    "Provisioner",
    "RequestHeader",
    "RunAborted",
    "RxTask",
    "ServerCommandRegister",
    "StreamHeaderKey",
    "TcpDriver",
    "TcpStreamServer",
    "TxTask",
    "byte_streamer",
    "driver_mgr",
    "error_reply",
    "fobs",
    "lobs",
    "new_cell_message",
    "prepare_builders",
    "prepare_project",
    "process_launcher",
    "verify_folder_signature_and_get_signers",
]
# Modules that run as processes.
SITE_MODULE = "nvflare.private.fed.app.client.client_train"
SERVER_MODULE = "nvflare.private.fed.app.server.server_train"
JOB_MODULES = (
    "nvflare.private.fed.app.client.worker_process",
    "nvflare.private.fed.app.server.runner_process",
)
