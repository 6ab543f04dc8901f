from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import DivergedError
from fedminmax.core.messages import Census, Reveals
from fedminmax.core.small_groups import SmallGroupRule
from fedminmax.training.checkpoint import Restored, load_checkpoint, save_checkpoint
from fedminmax.training.progress import Progress, initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import Round

__all__ = [
    "Census",
    "Certificate",
    "DivergedError",
    "Progress",
    "Restored",
    "Reveals",
    "Round",
    "Simulation",
    "SmallGroupRule",
    "initial_progress",
    "load_checkpoint",
    "save_checkpoint",
]
