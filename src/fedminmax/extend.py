"""All that a method of your own needs, in this package or in yours: see docs/own_method.md.

A method is a frozen record of pure functions: ``Census`` comes in once, an ``Order`` goes out and
``Sums`` come back in each round. Give it a card (``@MethodCard``); an entry point of the group
``fedminmax.methods`` makes it known to ``train``, ``compare`` and the network, and
``fedminmax.testing.check_method`` tells whether it keeps the contract of all methods.
"""

from fedminmax.core.certificate import Certificate
from fedminmax.core.errors import DivergedError, InputError
from fedminmax.core.examples import Examples
from fedminmax.core.iterates import Iterate
from fedminmax.core.linear_structure import LinearStructure
from fedminmax.core.local_epochs import LocalEpochs, shuffled_batches, train_locally
from fedminmax.core.messages import Census, Order, Reveals, RoundKey, Sums, descend, zero_sums
from fedminmax.core.one_step import losses_of, weighted_gradient
from fedminmax.core.parity import Parity
from fedminmax.core.randomness import Purpose, numpy_stream, torch_stream
from fedminmax.core.solvers.simplex import ascend_on_simplex, project_on_simplex
from fedminmax.core.workspace import Workspace
from fedminmax.methods.card import MethodCard, Over, Pace, Weights, card_of
from fedminmax.methods.fedminmax import FedMinMaxState
from fedminmax.methods.method import (
    AsksAgain,
    KeepingMethod,
    LocalMethod,
    OneStepMethod,
    RowSumsMethod,
    RowWeights,
    SiteData,
    VectorMethod,
)
from fedminmax.methods.shared.checks import (
    check_floor,
    check_not_negative,
    check_plan,
    check_positive,
    check_share,
    check_whole,
)
from fedminmax.methods.shared.expected_reply import (
    ExpectedReply,
    OwnLoss,
    Sender,
    batch_sizes,
    expect_local_epochs,
)
from fedminmax.methods.shared.replies import (
    NO_WEIGHTS,
    displacement,
    local_stream,
    shares_within_floor,
    sum_by_group,
    sums_before_training,
    uniform_weights,
    weigh_by_group,
)

__all__ = [
    "NO_WEIGHTS",
    "AsksAgain",
    "Census",
    "Certificate",
    "DivergedError",
    "Examples",
    "ExpectedReply",
    "FedMinMaxState",
    "InputError",
    "Iterate",
    "KeepingMethod",
    "LinearStructure",
    "LocalEpochs",
    "LocalMethod",
    "MethodCard",
    "OneStepMethod",
    "Order",
    "Over",
    "OwnLoss",
    "Pace",
    "Parity",
    "Purpose",
    "Reveals",
    "RoundKey",
    "RowSumsMethod",
    "RowWeights",
    "Sender",
    "SiteData",
    "Sums",
    "VectorMethod",
    "Weights",
    "Workspace",
    "ascend_on_simplex",
    "batch_sizes",
    "card_of",
    "check_floor",
    "check_not_negative",
    "check_plan",
    "check_positive",
    "check_share",
    "check_whole",
    "descend",
    "displacement",
    "expect_local_epochs",
    "local_stream",
    "losses_of",
    "numpy_stream",
    "project_on_simplex",
    "shares_within_floor",
    "shuffled_batches",
    "sum_by_group",
    "sums_before_training",
    "torch_stream",
    "train_locally",
    "uniform_weights",
    "weigh_by_group",
    "weighted_gradient",
    "zero_sums",
]
