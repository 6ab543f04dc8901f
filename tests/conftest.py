"""Property tests draw the same examples everywhere, and no clock can fail them."""

import torch
from hypothesis import settings

settings.register_profile(
    "fedminmax", deadline=None, derandomize=True, database=None, max_examples=50
)
settings.load_profile("fedminmax")

# The tensors are tiny: threads inside an operation would only wait for one another.
torch.set_num_threads(1)
