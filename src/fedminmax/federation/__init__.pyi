from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import DivergedError
from fedminmax.core.messages import Census, Reveals
from fedminmax.core.small_groups import SmallGroupRule
from fedminmax.federation.checkpoint import Restored, load_checkpoint, save_checkpoint
from fedminmax.federation.inprocess import InProcessFederation
from fedminmax.federation.progress import Progress, initial_progress
from fedminmax.federation.train import Round

__all__ = [
    "Census",
    "Certificate",
    "DivergedError",
    "InProcessFederation",
    "Progress",
    "Restored",
    "Reveals",
    "Round",
    "SmallGroupRule",
    "initial_progress",
    "load_checkpoint",
    "save_checkpoint",
]
