"""A site's answers to the questions from which an additive model's smoothing and pairs are chosen.

They come after the encoding without smoothing and before the one with it. The sums are those of the
plain mean fit over all records (``training.additive_class``): no more than a round's sums tell.
"""

from dataclasses import dataclass, replace

from fedminmax.core.additive.model import codes_with_pairs
from fedminmax.core.messages import Order
from fedminmax.core.workspace import Workspace
from fedminmax.methods.look_ahead import FedAvgFast
from fedminmax.network.site.encoded_site import EncodedSite
from fedminmax.network.wire.codec import RefusedError
from fedminmax.network.wire.endpoints import Endpoint, Question
from fedminmax.network.wire.messages import order_from_bytes
from fedminmax.network.wire.pairs import Pairs, pairs_from_bytes
from fedminmax.network.wire.plan import task_of
from fedminmax.training.additive_class import MAX_QUESTIONS
from fedminmax.training.cell_sums import MEAN_FIT, CellSums


@dataclass(frozen=True, eq=False)
class SmoothingQuestion:
    """What is asked, of rows that have the codes of these pairs, too."""

    question: Question
    order: Order
    pairs: Pairs
    site: EncodedSite

    @property
    def method(self) -> FedAvgFast | CellSums:
        """Whose sums are asked for."""
        return CellSums() if self.order.phase else MEAN_FIT


def read_smoothing_question(
    order: object, pairs: object, encoded_site: EncodedSite, sender: str
) -> SmoothingQuestion:
    """Read a question; refuse one that the plan does not have, or not at this time."""
    encoding = encoded_site.encoding
    if not encoding.is_additive or encoding.stage:
        raise RefusedError(f"{sender} asks about smoothing, which its plan does not have now")
    chosen = pairs_from_bytes(pairs, encoding, sender)
    site = _with_pairs(encoded_site, chosen)
    came = order_from_bytes(order, site.start, sender)
    if not 1 <= came.key.round <= MAX_QUESTIONS or came.phase > 1:
        raise RefusedError(f"{sender} asks for round {came.key.round} of smoothing")
    question = Question(Endpoint.SMOOTH, round=came.key.round, phase=came.phase)
    return SmoothingQuestion(question, came, chosen, site)


def _with_pairs(encoded_site: EncodedSite, pairs: Pairs) -> EncodedSite:
    encoding = replace(encoded_site.encoding, pairs=pairs)
    task, rows = task_of(encoded_site.plan, encoding), encoded_site.data.examples
    codes = codes_with_pairs(rows.x, pairs)
    return replace(
        encoded_site,
        encoding=encoding,
        task=task,
        data=replace(encoded_site.data, examples=replace(rows, x=codes)),
        workspace=Workspace(task),
        start=task.initial_parameters,
    )
