"""Whatever happens to the files, one readable checkpoint remains, or the user is told."""

import errno
import hashlib
import io
import math
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedminmax.core.losses import brier_loss
from fedminmax.methods.afl import AFL
from fedminmax.methods.fedavg import FedAvg, FedAvgState
from fedminmax.methods.fedminmax import FedMinMax, FedMinMaxState
from fedminmax.methods.method import AnyMethod
from fedminmax.methods.qfedavg import QFedAvg
from fedminmax.training.checkpoint import (
    SECONDS_BETWEEN_CHECKPOINTS,
    checkpoint_paths,
    load_checkpoint,
    pack,
    pause_after,
    save_checkpoint,
    train_resumably,
)
from fedminmax.training.progress import Progress, initial_progress
from fedminmax.training.simulation import Simulation
from fedminmax.training.train import train
from tests.complaints import complaint_of
from tests.problems import Problem, softmax_problem

PROBLEM = softmax_problem([[2, 1], [1, 2]])
METHOD = FedMinMax()


def save_rounds(folder: Path, rounds: int = 3) -> list[Progress[FedMinMaxState]]:
    """Train and save each round; return what was saved."""
    kept = [done.progress for done in train(PROBLEM.federation(), METHOD, rounds=rounds)]
    for progress in kept:
        save_checkpoint(folder, progress)
    return kept


def restored_round(folder: Path) -> tuple[int, str | None]:
    restored = load_checkpoint(folder, initial_progress(PROBLEM.federation(), METHOD))
    assert restored is not None
    return restored.progress.round, restored.complaint


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "first byte":
        content[0] ^= 1
    elif how == "last byte":
        content[-1] ^= 1
    elif how == "middle bit":
        content[len(content) // 2] ^= 4
    elif how == "truncated":
        del content[-100:]
    elif how == "digest only":
        del content[32:]
    elif how == "a few bytes":
        del content[7:]
    elif how == "empty":
        content.clear()
    path.write_bytes(bytes(content))


DAMAGES = [
    "first byte",
    "last byte",
    "middle bit",
    "truncated",
    "digest only",
    "a few bytes",
    "empty",
]


def test_the_newest_is_read_and_has_the_saved_numbers(tmp_path: Path) -> None:
    kept = save_rounds(tmp_path)
    restored = load_checkpoint(tmp_path, initial_progress(PROBLEM.federation(), METHOD))
    assert restored is not None
    assert restored.complaint is None
    progress = restored.progress
    assert progress.round == 3
    assert progress.gradient_evaluations == 18
    assert torch.equal(progress.state.parameters, kept[-1].state.parameters)
    assert torch.equal(progress.state.weights, kept[-1].state.weights)
    assert torch.equal(progress.iterates.early_sum, kept[-1].iterates.early_sum)


def test_no_checkpoint_is_not_an_error(tmp_path: Path) -> None:
    template = initial_progress(PROBLEM.federation(), METHOD)
    assert load_checkpoint(tmp_path, template) is None
    assert load_checkpoint(tmp_path / "missing", template) is None


def test_the_folder_is_made(tmp_path: Path) -> None:
    save_rounds(tmp_path / "deep" / "down")
    assert restored_round(tmp_path / "deep" / "down") == (3, None)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_falls_back_to_its_predecessor(how: str, tmp_path: Path) -> None:
    save_rounds(tmp_path)
    current, _ = checkpoint_paths(tmp_path)
    damage(current, how)
    number, complaint = restored_round(tmp_path)
    assert number == 2
    assert complaint is not None
    assert str(current) in complaint
    assert "truncated or corrupt" in complaint
    assert "\n" not in complaint


def test_a_missing_file_falls_back_to_its_predecessor(tmp_path: Path) -> None:
    save_rounds(tmp_path)
    checkpoint_paths(tmp_path)[0].unlink()
    assert restored_round(tmp_path)[0] == 2


@pytest.mark.parametrize("how", DAMAGES)
def test_two_damaged_files_are_told(how: str, tmp_path: Path) -> None:
    save_rounds(tmp_path)
    for path in checkpoint_paths(tmp_path):
        damage(path, how)
    message = complaint_of(lambda: restored_round(tmp_path))
    assert str(tmp_path) in message
    assert "remove that folder" in message


def test_a_first_file_that_is_damaged_is_told(tmp_path: Path) -> None:
    save_rounds(tmp_path, rounds=1)
    damage(checkpoint_paths(tmp_path)[0], "truncated")
    assert "truncated or corrupt" in complaint_of(lambda: restored_round(tmp_path))


OTHERS = {
    "the model's parameters had other shapes": softmax_problem([[2, 1], [1, 2]], classes=4),
    "the groups had other names": softmax_problem([[2, 1, 1], [1, 2, 1]]),
    # All shapes are the same, and only the shares of the groups would be wrong.
    "other numbers of rows": softmax_problem([[3, 1], [1, 2]]),
}


@pytest.mark.parametrize(("words", "other"), OTHERS.items(), ids=list(OTHERS))
def test_nothing_goes_on_with_another_problem(words: str, other: Problem, tmp_path: Path) -> None:
    progress = save_rounds(tmp_path)[-1]
    federation = other.federation()
    template = initial_progress(federation, METHOD)
    assert words in complaint_of(lambda: load_checkpoint(tmp_path, template))
    message = complaint_of(lambda: train(federation, METHOD, rounds=9, resume=progress))
    assert message.startswith("cannot resume")
    assert words in message


def test_models_with_as_many_parameters_in_other_shapes_are_told_apart() -> None:
    """Twelve parameters each: 2 features and 4 classes, 3 features and 3 classes."""
    wide = softmax_problem([[2, 1]], features=2, classes=4).federation()
    deep = softmax_problem([[2, 1]], features=3, classes=3).federation()
    (done,) = train(wide, METHOD, rounds=1)
    message = complaint_of(lambda: train(deep, METHOD, rounds=2, resume=done.progress))
    assert "the model's parameters had other shapes" in message


def test_a_model_with_another_start_goes_on(tmp_path: Path) -> None:
    """Whoever builds the model anew, without a seed, has another theta^0, which nothing needs."""
    kept = save_rounds(tmp_path)
    other_start = replace(PROBLEM, start=PROBLEM.start + 1.0).federation()
    restored = load_checkpoint(tmp_path, initial_progress(other_start, METHOD))
    assert restored is not None
    (done,) = train(other_start, METHOD, rounds=4, resume=restored.progress)
    (meant,) = train(PROBLEM.federation(), METHOD, rounds=4, resume=kept[-1])
    assert torch.equal(done.parameters(), meant.parameters())


def test_what_load_checkpoint_returns_is_not_yet_a_progress(tmp_path: Path) -> None:
    save_rounds(tmp_path)
    restored: Any = load_checkpoint(tmp_path, initial_progress(PROBLEM.federation(), METHOD))
    message = complaint_of(lambda: train(PROBLEM.federation(), METHOD, rounds=9, resume=restored))
    assert "Restored" in message
    assert "restored.progress" in message


def write_signed(path: Path, content: object) -> None:
    """Write a checkpoint file whose digest is right, whatever its content is."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = content if isinstance(content, bytes) else buffer.getvalue()
    path.write_bytes(hashlib.sha256(payload).digest() + payload)


def test_a_run_in_which_all_groups_played_does_not_go_on_without_some(tmp_path: Path) -> None:
    with_small = Simulation(
        PROBLEM.model(), brier_loss, [*PROBLEM.sites, PROBLEM.sites[0]], minimum_group=5
    )
    all_play = Simulation(PROBLEM.model(), brier_loss, [*PROBLEM.sites, PROBLEM.sites[0]])
    assert with_small.census.included.tolist() == [True, False]
    (done,) = train(all_play, METHOD, rounds=1)
    save_checkpoint(tmp_path, done.progress)
    template = initial_progress(with_small, METHOD)
    words = "other groups were too small for the adversary to choose"
    assert words in complaint_of(lambda: load_checkpoint(tmp_path, template))
    (there,) = train(with_small, METHOD, rounds=1)
    save_checkpoint(tmp_path, there.progress)
    again = load_checkpoint(tmp_path, template)
    assert again is not None
    assert again.progress.state.included.tolist() == [True, False]


@pytest.mark.parametrize("left_out", ["identity.rows", "identity.values", "kept", "state.included"])
def test_a_checkpoint_without_one_of_its_fields_is_refused(left_out: str, tmp_path: Path) -> None:
    """What cannot be compared with this run is not trusted."""
    (done,) = train(PROBLEM.federation(), METHOD, rounds=1)
    flat = pack(done.progress)
    del flat[left_out]
    path, _ = checkpoint_paths(tmp_path)
    write_signed(path, flat)
    template = initial_progress(PROBLEM.federation(), METHOD)
    message = complaint_of(lambda: load_checkpoint(tmp_path, template))
    assert f"only one has '{left_out}'" in message


def foreign_contents() -> dict[str, object]:
    (done,) = train(PROBLEM.federation(), METHOD, rounds=1)
    flat = pack(done.progress)
    nothing = torch.full_like(done.parameters(), float("nan"))
    return {
        "no bytes": b"",
        "text": b"this is no checkpoint",
        "a pickled object": pickle.dumps(Path("elsewhere")),
        "a list": [1, 2],
        "numbered entries": dict(enumerate(flat.values())),
        "nothing in it": {},
        "text for a tensor": flat | {"state.weights": "half"},
        "a sparse tensor": flat | {"state.weights": done.weights.to_sparse()},
        "no number of rounds": flat | {"round": -1, "iterates.rounds": -1},
        "two numbers of rounds": flat | {"round": 7},
        "a game that is no text": flat | {"identity.rows": 5},
        "parameters that are no numbers": flat | {"state.parameters": nothing},
    }


FOREIGN = foreign_contents()


@pytest.mark.parametrize("kind", list(FOREIGN))
def test_foreign_content_with_a_right_digest_is_told(kind: str, tmp_path: Path) -> None:
    save_rounds(tmp_path)
    current, previous = checkpoint_paths(tmp_path)
    write_signed(current, FOREIGN[kind])
    number, complaint = restored_round(tmp_path)
    assert number == 2
    assert complaint is not None
    assert "\n" not in complaint
    write_signed(previous, FOREIGN[kind])
    assert str(tmp_path) in complaint_of(lambda: restored_round(tmp_path))


METHODS: list[AnyMethod[Any]] = [FedMinMax(), AFL(), FedAvg(), QFedAvg(1.0)]


@pytest.mark.parametrize("reader", METHODS, ids=lambda method: method.name)
@pytest.mark.parametrize("writer", METHODS, ids=lambda method: method.name)
def test_a_checkpoint_of_another_method_is_refused(
    writer: AnyMethod[Any], reader: AnyMethod[Any], tmp_path: Path
) -> None:
    federation = PROBLEM.federation()
    save_checkpoint(tmp_path, initial_progress(federation, writer))
    template = initial_progress(federation, reader)
    if writer is reader:
        assert load_checkpoint(tmp_path, template) is not None
    else:
        complaint_of(lambda: load_checkpoint(tmp_path, template))


def test_a_single_precision_checkpoint_is_refused_by_a_double_precision_run(tmp_path: Path) -> None:
    progress = initial_progress(PROBLEM.federation(), FedAvg())
    single = replace(progress, state=FedAvgState(progress.state.parameters.float()))
    save_checkpoint(tmp_path, single)
    complaint_of(lambda: load_checkpoint(tmp_path, progress))


def test_a_full_disk_while_saving_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = save_rounds(tmp_path)
    before = [path.read_bytes() for path in checkpoint_paths(tmp_path)]

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="space"):
            save_checkpoint(tmp_path, kept[0])
    assert [path.read_bytes() for path in checkpoint_paths(tmp_path)] == before
    assert restored_round(tmp_path) == (3, None)
    save_checkpoint(tmp_path, kept[0])
    assert restored_round(tmp_path) == (1, None)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_crash_between_the_two_renames_leaves_a_readable_checkpoint(
    *, damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the current file was already damaged: it must not replace a good predecessor."""
    kept = save_rounds(tmp_path)
    current, _ = checkpoint_paths(tmp_path)
    if damaged:
        damage(current, "middle bit")
    rename = Path.replace

    def crash(self: Path, target: Path) -> Path:
        if Path(target) == current:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crash)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            save_checkpoint(tmp_path, kept[-1])
    assert restored_round(tmp_path)[0] in {2, 3}


@pytest.mark.parametrize(
    ("writer", "reader"), [(QFedAvg(0.2), QFedAvg(5.0)), (FedMinMax(), FedMinMax(min_weight=0.1))]
)
def test_other_settings_of_the_same_method_do_not_go_on_from_here(
    writer: AnyMethod[Any], reader: AnyMethod[Any], tmp_path: Path
) -> None:
    federation = PROBLEM.federation()
    progress = initial_progress(federation, writer)
    save_checkpoint(tmp_path, progress)
    assert "method" in complaint_of(
        lambda: load_checkpoint(tmp_path, initial_progress(federation, reader))
    )
    message = complaint_of(lambda: train(federation, reader, rounds=2, resume=progress))
    assert message.startswith("cannot resume")


def test_a_file_that_we_wrote_ourselves_is_not_read_again_unless_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current, previous = checkpoint_paths(tmp_path)
    first, second, third = (done.progress for done in train(PROBLEM.federation(), METHOD, rounds=3))
    written = save_checkpoint(tmp_path, first)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", None)
        written = save_checkpoint(tmp_path, second, written)
    kept = previous.read_bytes()
    damage(current, "middle bit")
    save_checkpoint(tmp_path, third, written)
    assert previous.read_bytes() == kept
    assert restored_round(tmp_path) == (3, None)


def test_the_same_call_goes_on_where_the_folder_stands(tmp_path: Path) -> None:
    """A folder as a text, and nothing in it yet: the first call begins, the second goes on."""
    federation, folder = PROBLEM.federation(), str(tmp_path / "run")
    whole = list(train(federation, METHOD, rounds=5, seed=3))[-1]
    for done in train_resumably(folder, federation, METHOD, rounds=5, seed=3):
        if done.number == 2:
            break
    rest = list(train_resumably(folder, federation, METHOD, rounds=5, seed=3))
    # The round in whose body the loop was left is done again.
    assert [done.number for done in rest] == [2, 3, 4, 5]
    assert torch.equal(rest[-1].parameters(), whole.parameters())
    assert list(train_resumably(folder, federation, METHOD, rounds=5, seed=3)) == []
    damage(tmp_path / "run" / "checkpoint.bin", "truncated")
    with pytest.warns(UserWarning, match="using the previous checkpoint"):
        train_resumably(folder, federation, METHOD, rounds=6, seed=3)


def test_saving_takes_no_more_than_its_share_of_the_time() -> None:
    assert pause_after(0.1, 0.05) == pytest.approx(2.0)
    assert pause_after(5.0, 0.05) == SECONDS_BETWEEN_CHECKPOINTS
    assert pause_after(0.1, math.inf) == 0.0
    assert pause_after(0.1, 0.0) == SECONDS_BETWEEN_CHECKPOINTS
