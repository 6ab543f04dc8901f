"""The encoding of tables for an additive model whose class of models is chosen.

It is apart from the choice, which needs no tables: estimators make it from arrays.
"""

from dataclasses import replace

from fedminmax.data.tables.encoding import Encoding, with_smoothing
from fedminmax.data.tables.plain_fit import plain_fit
from fedminmax.training.additive_class import AdditiveClass


def encoding_of_class(encoding: Encoding, chosen: AdditiveClass) -> Encoding:
    """Return the encoding with the chosen smoothing and pairs, and what the plain fit shows."""
    values = [block.smoothing for block in chosen.blocks]
    smoothed = with_smoothing(encoding, values, chosen.pairs)
    fit = plain_fit(
        chosen.blocks, chosen.counts.tolist(), chosen.standard_errors.tolist(), chosen.rounds
    )
    return replace(smoothed, plain_fit=fit)
