"""What a network sees of a table: the additive model's effects, and last their sum."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from fedminmax.core.additive.effects import centred_effects
from fedminmax.core.additive.model import AdditiveModel
from fedminmax.core.errors import InputError
from fedminmax.data.tables.encoding_json import encoding_as_json, encoding_from_json
from fedminmax.data.tables.plain_fit import inputs_of
from fedminmax.exports.saved_model import SavedModel
from tests.exports.saved_models import ROWS, saved_additive_model, saved_network_on_effects


def with_its_effects(saved: SavedModel) -> SavedModel:
    encoding, model = saved.encoding, saved.model
    assert isinstance(model, AdditiveModel)
    sizes = [block.size for block in encoding.blocks]
    counts = torch.arange(1.0, sum(sizes) + 1.0)
    centred = centred_effects(model.effects, model.bias, sizes, (), counts)
    inputs = inputs_of(encoding.blocks, centred.effects, counts)
    return replace(saved, encoding=replace(encoding, inputs=inputs))


@pytest.mark.parametrize("classes", [("no", "yes"), ("low", "mid", "high"), ()])
def test_the_last_inputs_are_the_scores_of_the_additive_model(classes: tuple[str, ...]) -> None:
    saved = saved_additive_model(classes)
    frame = pl.DataFrame(ROWS)
    outputs = saved.model(saved.encode(frame)).detach()
    if len(classes) == 2:
        outputs = outputs[:, 1:] - outputs[:, :1]
    elif classes:
        outputs = outputs - outputs.mean(dim=1, keepdim=True)
    sums = with_its_effects(saved).encode(frame)[:, -outputs.shape[1] :].double()
    # Effects are centred: only a constant is missing.
    torch.testing.assert_close(sums - sums[0], outputs - outputs[0], atol=1e-4, rtol=1e-4)


def test_every_input_has_a_name_and_no_row_is_longer_than_the_bound() -> None:
    for classes in [("no", "yes"), ("low", "mid", "high")]:
        saved = saved_network_on_effects(classes)
        rows = saved.encode(pl.DataFrame(ROWS))
        assert rows.shape[1] == len(saved.encoding.names) == len({*saved.encoding.names})
        assert float(rows.double().square().sum(dim=1).max()) + 1.0 <= saved.encoding.longest_row


def test_positions_have_mean_0_and_deviation_1_over_training_records() -> None:
    saved = saved_network_on_effects(("no", "yes"))
    age, *_ = saved.encoding.inputs
    counts = np.arange(1.0, 6.0)
    places = np.array(age[1])
    assert counts @ places[:5] == pytest.approx(0.0, abs=1e-4)
    assert counts @ places[:5] ** 2 / counts.sum() == pytest.approx(1.0, abs=1e-4)
    assert places[5] == 0.0


def test_they_are_read_back_and_others_are_refused() -> None:
    encoding = saved_network_on_effects(("no", "yes")).encoding
    assert encoding_from_json(encoding_as_json(encoding), "it") == encoding
    for wrong in (encoding.inputs[1:], (encoding.inputs[0][:1], *encoding.inputs[1:])):
        text = encoding_as_json(replace(encoding, inputs=wrong))
        with pytest.raises(InputError, match="inputs of other codes"):
            encoding_from_json(text, "it")
