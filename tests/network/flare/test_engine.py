"""What is internal of NVIDIA FLARE and used here is in one file, and is what was read.

Another release fails here, with a line for each thing that changed.
"""

import ast
import hashlib
import inspect
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import fedminmax

SOURCE = Path(fedminmax.__file__).parent
ENGINE = SOURCE / "network" / "flare" / "engine.py"
# Documented by the engine's own pages.
DOCUMENTED = {
    *("nvflare", "nvflare.collab", "nvflare.apis.fl_constant", "nvflare.apis.fl_exception"),
    *("nvflare.fuel.flare_api.api_spec", "nvflare.fuel.flare_api.flare_api"),
    *("nvflare.job_config.api", "nvflare.recipe.spec"),
}
# What is replaced, or built upon: the first digits of its source's SHA-256.
READ = {
    "nvflare.fuel.f3.cellnet.core_cell CoreCell.process_message": "51f1eca58e23",
    "nvflare.fuel.f3.cellnet.core_cell CoreCell._add_adhoc_connector": "73456279d22b",
    "nvflare.fuel.f3.cellnet.core_cell CoreCell.start": "6ba79b226781",
    "nvflare.fuel.f3.cellnet.connector_manager ConnectorManager.__init__": "ebde8e1f97a0",
    "nvflare.fuel.utils.fobs.fobs Packer.unpack": "f52699a2b295",
    "nvflare.fuel.utils.fobs.lobs _get_one_section": "d3df1c8ded71",
    "nvflare.private.fed.client.admin FedAdminAgent.register_processor": "11b32090f7d3",
    "nvflare.private.fed.client.admin FedAdminAgent._dispatch_request": "2943d74e9aaf",
    "nvflare.fuel.hci.server.reg ServerCommandRegister._do_command": "ba52a638b1db",
    "nvflare.private.fed.utils.app_deployer AppDeployer.deploy": "c0a56fb6541f",
    "nvflare.utils.process_utils spawn_process": "3adc1f277833",
    "nvflare.fuel.f3.streaming.byte_receiver RxTask._schedule_remove_task": "53ba0fe8e955",
    "nvflare.fuel.f3.streaming.byte_receiver RxTask._send_ack": "9fa872eb8367",
    "nvflare.fuel.f3.streaming.byte_streamer TxTask.__init__": "037ec1f94a76",
    "nvflare.fuel.f3.streaming.byte_streamer ReliableRetryScheduler": "dbde9df77066",
    "nvflare.fuel.f3.drivers.tcp_driver TcpDriver.listen": "fde878dbc254",
    "nvflare.fuel.f3.drivers.tcp_driver TcpStreamServer": "9984fe79dcd6",
}


def imported(path: Path) -> list[tuple[str, str]]:
    """The modules of the engine that a file imports, and the names from each."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nvflare"):
            found += [(str(node.module), alias.name) for alias in node.names]
        if isinstance(node, ast.Import):
            found += [(n.name, "") for n in node.names if n.name.startswith("nvflare")]
    return found


def named_modules() -> list[str]:
    """The modules that run as processes, by the strings of the file."""
    tree = ast.parse(ENGINE.read_text(encoding="utf-8"))
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [word for word in map(str, strings) if word.startswith("nvflare.")]


@pytest.mark.parametrize(
    ("module", "name"), [*imported(ENGINE), *((m, "") for m in named_modules())]
)
def test_the_engine_has_what_is_used(module: str, name: str) -> None:
    there = find_spec(module) is not None and (
        not name or hasattr(import_module(module), name) or find_spec(f"{module}.{name}")
    )
    engine = f"nvflare {version('nvflare')}"
    assert there, f"{engine} has no {module} {name}, which network/flare/engine.py imports"


def test_everything_internal_is_imported_in_one_file() -> None:
    for path in SOURCE.rglob("*.py"):
        others = {module for module, _ in imported(path)} - DOCUMENTED
        assert path == ENGINE or not others, f"{path} imports {others}; import it in {ENGINE}"
    assert len(named_modules()) == 4
    assert len({module for module, _ in imported(ENGINE)}) <= 26


@pytest.mark.parametrize("place", READ)
def test_what_is_replaced_is_as_it_was_read(place: str) -> None:
    module, name = place.split()
    text = source_of(module, name)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    assert digest == READ[place], (
        f"nvflare {version('nvflare')} changed {place}: read it and what replaces it "
        f"(network/flare/patches.py), then write {digest} here"
    )


def source_of(module: str, name: str) -> str:
    """The source of a class or function, as it is in the file: other tests replace it in memory."""
    text = inspect.getsource(import_module(module))
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        node = next(
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.ClassDef | ast.FunctionDef) and child.name == part
        )
    return str(ast.get_source_segment(text, node))
