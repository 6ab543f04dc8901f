"""Whether a model and a loss can be federated: tried on a few rows before the first round.

Each row's loss must depend on that row alone. Losses are summed over rows, and rows are split into
sites, batches and chunks, so a model or a loss that uses the other rows of a batch gives
different numbers for every split, without an error.

Random numbers must repeat with the seed. A few rows go through model, loss and backward pass more
than once. A draw from a global generator of torch, numpy or Python changes that generator's state
(which is restored afterwards). A model or a loss that draws from another source, or counts its
calls, gives different numbers for the same seed.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from fedminmax.core.errors import InputError
from fedminmax.core.examples import Examples, concatenate
from fedminmax.core.randomness import Purpose, global_states, globally_seeded
from fedminmax.core.task import Task, copy_model, first_line, trainable_parameters, try_task

ROWS_TRIED = 8
# Sums on devices other than the CPU may differ from call to call.
ROUNDING_OFF_CPU = 1e-3
MODEL_CAUSE = (
    "the model uses other rows, for example it centres or normalises over the batch, or takes the "
    "first dimension as time (batch_first); use torch.nn.LayerNorm or GroupNorm"
)


def draws_random_numbers(task: Task, examples: Examples) -> bool:
    """Return whether a pass over rows draws random numbers (dropout, for example).

    A task that changes its own buffers is refused: they would depend on the order of sites. So is
    one whose draws do not repeat with the seed.
    """
    few = examples.rows(torch.arange(min(ROWS_TRIED, len(examples))))
    modules = [part for part in (task.model, task.loss) if isinstance(part, nn.Module)]
    buffers = [buffer for module in modules for buffer in module.buffers()]
    # Torch counts writes to a tensor, so even a write that changes no value is detected.
    versions = [buffer._version for buffer in buffers]
    first, moved = _try(task, few, seed=0)
    again, _ = _try(task, few, seed=0)
    now = [buffer for module in modules for buffer in module.buffers()]
    if any(
        new is not old or new._version != version
        for old, new, version in zip(buffers, now, versions, strict=True)
    ):
        raise InputError(
            "the model changes its own buffers in a forward pass, so its results would "
            "depend on the order of sites; use a model without running statistics"
        )
    if not _same(first, again):
        raise InputError(
            "the model or the loss gives different numbers for the same rows and the same seed, so "
            "no run could be repeated; draw from torch's, numpy's or Python's global generator, "
            "which are seeded in every round, and keep no count of calls"
        )
    if moved or few.x.device.type == "cpu":
        return moved
    # Other devices have random states of their own.
    return not _same(first, _try(task, few, seed=1)[0])


def _try(task: Task, few: Examples, seed: int) -> tuple[Tensor, bool]:
    """Return losses and gradients of some rows, and whether a random state changed."""
    with globally_seeded(seed, Purpose.DROPOUT), torch.enable_grad():
        before = global_states()
        _, losses = try_task(task, few, "a few rows")
        gradients = torch.autograd.grad(
            losses.sum(), trainable_parameters(task.model), materialize_grads=True
        )
        moved = global_states() != before
    found = [losses.detach(), *(g.reshape(-1) for g in gradients)]
    return torch.nan_to_num(torch.cat(found)), moved


def _same(one: Tensor, other: Tensor) -> bool:
    if one.device.type == "cpu":
        return torch.equal(one, other)
    return bool((one - other).norm() <= ROUNDING_OFF_CPU * one.norm())


def contrasting_rows(sites: Sequence[Examples]) -> Examples:
    """Pick four rows that are likely to differ: extreme targets, and the ends of a site."""
    occupied = [rows for rows in sites if len(rows)]
    largest = max(occupied, key=len)
    targets = [rows.y.reshape(len(rows), -1)[:, 0] for rows in occupied]
    low = min(range(len(occupied)), key=lambda number: float(targets[number].min()))
    high = max(range(len(occupied)), key=lambda number: float(targets[number].max()))
    picked = (
        (largest, 0),
        (largest, len(largest) - 1),
        (occupied[low], int(targets[low].argmin())),
        (occupied[high], int(targets[high].argmax())),
    )
    return concatenate([rows.rows(torch.tensor([position])) for rows, position in picked])


def check_rows_independent(task: Task, rows: Examples) -> None:
    """Refuse a task in which a row's loss depends on the other rows of its batch.

    There are two comparisons. A row among others against as many copies of itself: both batches
    have the same shape, so almost all digits must agree. And each row in a batch against the row
    alone, where sums may be rounded in another order: the effect on the loss is measured by
    changing the last digit of the features. Dropout and similar layers are switched off.
    """
    model = _perturbed(task).train()
    if _draws(Task(model, task.loss), rows):
        model.eval()
    still = Task(model, task.loss)
    count = len(rows)
    outputs, losses = _try_seeded(still, rows)
    precision = torch.finfo(losses.dtype).eps
    for row in range(count // 2, count):
        own_outputs, own_losses = _try_seeded(still, rows.rows(torch.full((count,), row)))
        strict = precision**0.75
        if _differ(losses[row], own_losses[row], strict):
            by_model = len(outputs) == count and _differ(outputs[row], own_outputs[row], strict)
            cause = MODEL_CAUSE if by_model else _loss_cause(outputs, rows)
            raise _rows_mix_error(losses[row], own_losses[row], count, cause)
    if _draws(still, rows):
        # It draws different numbers for a batch of another shape, so nothing can be compared.
        return
    _, shaken = _try_seeded(still, _last_digits_changed(rows))
    rounding = 64.0 * float((losses - shaken).abs().max())
    for row in range(count):
        try:
            _, alone = _try_seeded(still, rows.rows(torch.tensor([row])))
        except InputError as error:
            raise InputError(
                f"model and loss fail on a batch of one row ({first_line(error)}), and such "
                "batches occur; name the dimension, as in squeeze(1)"
            ) from error
        if _differ(losses[row], alone.reshape(-1)[0], precision**0.25, rounding):
            raise _rows_mix_error(
                losses[row], alone.reshape(-1)[0], count, _loss_cause(outputs, rows)
            )


def _perturbed(task: Task) -> torch.nn.Module:
    """Return a copy of the model with perturbed weights: at 0 all rows would look the same."""
    model = copy_model(task.model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in trainable_parameters(model):
            if bool((parameter == parameter.reshape(-1)[:1]).all()):
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(0.1 * noise.to(parameter))
    return model


def _try_seeded(task: Task, rows: Examples) -> tuple[Tensor, Tensor]:
    with globally_seeded(0, Purpose.DROPOUT):
        outputs, losses = try_task(task, rows, "a few rows")
    return outputs.detach(), losses.detach()


def _draws(task: Task, rows: Examples) -> bool:
    """Return whether a pass draws random numbers."""
    with globally_seeded(0, Purpose.DROPOUT):
        before = global_states()
        try_task(task, rows, "a few rows")
        return global_states() != before


def _last_digits_changed(rows: Examples) -> Examples:
    if not rows.x.is_floating_point():
        return rows
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, rows.x.shape, generator=generator).to(rows.x) * 2 - 1
    return replace(rows, x=rows.x + rows.x * signs * torch.finfo(rows.x.dtype).eps)


def _differ(one: Tensor, other: Tensor, tolerance: float, rounding: float = 0.0) -> bool:
    """Return whether two numbers differ; NaN is left for the first round to refuse."""
    size = torch.maximum(one.abs(), other.abs()).max()
    return bool(((one - other).abs() > tolerance * size + rounding).any())


def _loss_cause(outputs: Tensor, rows: Examples) -> str:
    if outputs.dim() == 2 and outputs.shape[1] == 1 and rows.y.dim() == 1:
        return (
            "outputs of shape [n, 1] minus y of shape [n] is a table [n, n]; "
            "use outputs.squeeze(1) or squared_error_loss"
        )
    return "the loss uses the whole batch, for example a mean or a sum over rows; drop that"


def _rows_mix_error(among: Tensor, alone: Tensor, count: int, cause: str) -> InputError:
    return InputError(
        f"a row's loss is {float(among):g} in a batch of {count} and {float(alone):g} by itself: "
        f"{cause}"
    )
