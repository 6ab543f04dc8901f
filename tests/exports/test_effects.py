"""Explanations of saved models: sums that an independent evaluation of the tables gives."""

import math
from datetime import date
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from fedminmax.core.additive.model import AdditiveModel, codes_with_pairs
from fedminmax.core.examples import Examples
from fedminmax.data.tables.plain_fit import Departure
from fedminmax.exports.effects import departures_of, effects_of
from fedminmax.exports.saved_model import SavedModel, load_model, save_model
from fedminmax.metrics.code_sums import code_shape, code_sums, no_code_sums
from tests.complaints import complaint_of
from tests.exports.saved_models import CODED, PAIRS, ROWS, saved_additive_model, saved_model

WARDS = {"a": 0, "b": 1, "": 2, "NA": 2}


def codes_by_hand() -> list[list[int]]:
    """The codes of the rows, written down column by column."""
    ages = [None if t in ("", "NA") else float(t) for t in ROWS["age"]]
    age = [5 if a is None else sum(a >= e for e in (18.0, 30.5, 50.0, 65.0)) for a in ages]
    ward = [WARDS.get(text, 3) for text in ROWS["ward"]]
    days = [
        math.nan if not t else (date.fromisoformat(t) - date(1970, 1, 1)).days
        for t in ROWS["since"]
    ]
    since = [
        1 if math.isnan(d) else sum(d >= e for e in (18_000.0, 18_700.5, 19_000.0)) for d in days
    ]
    smoker = [0 if text in ("no", "0", "") else 1 for text in ROWS["smoker"]]
    columns = [age, ward, since, smoker]
    for pair in PAIRS:
        first, second = columns[pair.first], columns[pair.second]
        columns.append(
            [
                pair.first_cells[a] * pair.width + pair.second_cells[b]
                for a, b in zip(first, second, strict=True)
            ]
        )
    return columns


def outputs_by_hand(saved: SavedModel) -> np.ndarray:
    model = saved.model
    assert isinstance(model, AdditiveModel)
    table, outputs = model.weight.detach().numpy(), np.zeros((6, len(model.weight)))
    outputs += model.bias.detach().numpy()
    start = 0
    for codes, block in zip(codes_by_hand(), saved.encoding.blocks, strict=True):
        outputs += table[:, [start + code for code in codes]].T
        start += block.size
    return outputs


@pytest.mark.parametrize("classes", [("no", "yes"), ("low", "mid", "high"), ()])
def test_predictions_and_explanations_are_sums_of_effects(
    classes: tuple[str, ...], tmp_path: Path
) -> None:
    save_model(tmp_path / "model.safetensors", saved_additive_model(classes))
    saved = load_model(tmp_path / "model.safetensors")
    frame, outputs = pl.DataFrame(ROWS), outputs_by_hand(saved)
    if not classes:
        scores = 1e4 + 25.0 * outputs
        np.testing.assert_allclose(saved.predict(frame), scores[:, 0], rtol=1e-14)
    else:
        chances = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(saved.predict_proba(frame), chances, atol=1e-13)
        scores = np.log(chances[:, 1:] / chances[:, :1])
        if len(classes) == 3:
            scores = outputs - outputs.mean(axis=1, keepdims=True)
    explained = saved.explain(frame)
    names = ("age", "ward", "since", "smoker", "age and ward", "since and smoker")
    for number in range(scores.shape[1]):
        of, on = (
            ("", "") if len(classes) != 3 else (f" of {classes[number]}", f" on {classes[number]}")
        )
        total = explained[f"base score{of}"] + sum(explained[f"effect of {n}{on}"] for n in names)
        np.testing.assert_allclose(explained[f"score{of}"], scores[:, number], rtol=1e-12)
        np.testing.assert_allclose(total, explained[f"score{of}"], rtol=0, atol=1e-11)


def test_effects_are_centred_by_counts_and_small_counts_are_averaged() -> None:
    saved = saved_additive_model(())
    effects = effects_of(saved.model, saved.encoding)
    assert effects is not None
    assert [effect.name for effect in effects.effects][-2:] == ["age and ward", "since and smoker"]
    age, ward, since, smoker, *_ = effects.effects
    # Codes have 0, 7, 14, ... records; those of the first three bins are told together.
    assert age.counts == (7, 7, 7, 21, 28, 35)
    for effect in effects.effects:
        mean = np.average(effect.values[0], weights=effect.counts)
        spread = np.average(np.square(effect.values[0]), weights=effect.counts)
        assert mean == pytest.approx(0.0, abs=1e-9)
        assert effect.importance == pytest.approx(math.sqrt(spread))
    assert age.axes[0].edges == CODED[0].edges
    assert ward.axes[0].labels == ("a", "b", "missing", "other values")
    assert since.axes[0].is_date
    assert smoker.axes[0].labels == ("no", "yes")
    # In the target's unit, as effects are.
    assert set(age.errors[0]) == {0.25 * 25.0}
    assert effects.by_importance[0].importance == max(e.importance for e in effects.effects)


def test_other_models_and_mixtures_are_not_explained() -> None:
    frame = pl.DataFrame(ROWS)
    linear, mixture = saved_model(("no", "yes")), saved_additive_model(("no", "yes"), members=2)
    assert 'train with kind = "additive"' in complaint_of(lambda: linear.explain(frame))
    assert "a mixture of 2 models" in complaint_of(lambda: mixture.explain(frame))
    assert effects_of(mixture.model, mixture.encoding) is None


def drawn_records(
    saved: SavedModel, rows: int, seed: int, shift: float = 0.0
) -> tuple[Examples, np.ndarray]:
    """Records whose targets follow the model; in group 1 with ``shift`` more at old age."""
    generator = np.random.default_rng(seed)
    sizes = [block.size for block in saved.encoding.blocks[:4]]
    codes = torch.from_numpy(np.stack([generator.integers(0, s, rows) for s in sizes], axis=1))
    x = codes_with_pairs(codes, saved.encoding.pairs)
    group = torch.from_numpy(generator.integers(0, len(saved.encoding.groups), rows))
    moved = (shift * ((group == 1) & (codes[:, 0] >= 3))).numpy()
    with torch.no_grad():
        outputs = saved.model(x).numpy()
    if outputs.shape[1] == 1:
        y = outputs[:, 0] + moved + generator.normal(size=rows)
    else:
        y = (outputs[:, 1] - outputs[:, 0] + moved > generator.logistic(size=rows)).astype(int)
    return Examples(x, torch.from_numpy(y), group), moved


def departures(saved: SavedModel, parts: list[Examples]) -> tuple[Departure, ...] | None:
    shape = code_shape(saved.encoding, 1)
    by_part = [code_sums([saved.model], rows, shape) for rows in parts]
    found = departures_of(saved.encoding, reduce(add, by_part, no_code_sums(shape)))
    return found[0] if found else None


@pytest.mark.parametrize("classes", [("no", "yes"), ()])
def test_no_group_differs_from_effects_that_its_records_follow(classes: tuple[str, ...]) -> None:
    """All groups and columns together are right in 95 of 100 tables."""
    saved = saved_additive_model(classes)
    found = [departures(saved, [drawn_records(saved, 2_000, seed)[0]]) for seed in range(20)]
    assert sum(bool(own) for own in found) <= 3


@pytest.mark.parametrize("classes", [("no", "yes"), ()])
def test_a_group_with_another_effect_is_found_with_its_levels(classes: tuple[str, ...]) -> None:
    saved = saved_additive_model(classes)
    rows, _ = drawn_records(saved, 40_000, 1, shift=0.8)
    halves = [rows.rows(torch.arange(k, len(rows), 2)) for k in (0, 1)]
    (own,) = departures(saved, halves) or ()
    assert (own.column, own.group) == ("age", saved.encoding.group_names[1])
    unit = 1.0 if classes else 25.0
    old = np.array([cell[0] >= 3 for cell in own.cells])
    assert [code for cell in own.cells for code in cell] == list(range(6))
    shifts = np.array(own.shifts) / unit
    # Shifts are beyond the group's mean; missing values are old here, too. One step from 0 to the
    # odds' logarithm falls short of it.
    apart = shifts[old].mean() - shifts[~old].mean()
    assert apart == pytest.approx(0.8, rel=0.15)
    if not classes:
        group = rows.rows((rows.group == 1).nonzero()[:, 0])
        with torch.no_grad():
            residual = (group.y - saved.model(group.x)[:, 0]).numpy()
        means = [
            residual[np.isin(group.x[:, 0].numpy(), cell)].mean() for cell in own.cells
        ] - residual.mean()
        np.testing.assert_allclose(shifts, means, rtol=1e-9, atol=1e-12)


def test_more_classes_and_other_models_have_no_departures() -> None:
    assert departures(saved_additive_model(("low", "mid", "high")), []) is None
    assert departures(saved_model(("no", "yes")), []) is None
