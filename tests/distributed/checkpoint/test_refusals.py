"""What PyTorch's tests of distributed checkpoints expect to be refused, and as what."""

from __future__ import annotations

import traceback

import pytest

import weft as torch
import weft.distributed.checkpoint as dcp
from tests.distributed.refusals import refuses, rows
from weft import nn
from weft.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from weft.futures import Future


class Failing:
    """Storage that fails in one of its steps."""

    def __init__(self, step, metadata=None):
        self.step, self.metadata = step, metadata

    def _come_to(self, step):
        if step == self.step:
            raise ValueError(f"no {step}")

    def reset(self, checkpoint_id=None):
        self._come_to("reset")

    def prepare_local_plan(self, plan):
        self._come_to("local plan")
        return plan

    def prepare_global_plan(self, plans):
        self._come_to("global plan")
        return plans

    def _future(self, result):
        self._come_to("transfer")
        future = Future()
        if self.step == "future":
            future.set_exception(ValueError("no future"))
        else:
            future.set_result(result)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True


class Writer(Failing, dcp.StorageWriter):
    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        self._come_to("set up")

    def write_data(self, plan, planner):
        return self._future([])

    def finish(self, metadata, results):
        self._come_to("finish")


class Reader(Failing, dcp.StorageReader):
    def read_metadata(self, *args, **kwargs):
        self._come_to("metadata")
        return self.metadata

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        self._come_to("set up")

    def read_data(self, plan, planner):
        return self._future(None)


def cause_of(call):
    """Raise what the only rank has failed with."""
    try:
        call()
    except dcp.CheckpointException as error:
        raise error.failures[0][0]  # noqa: B904  as users do


@pytest.mark.parametrize("step", ["set up", "local plan", "global plan", "transfer", "future", "finish"])
def test_storage_that_cannot_be_written(step):
    refuses(lambda: cause_of(lambda: dcp.save({"a": torch.ones(2)}, storage_writer=Writer(step))), ValueError, step[:6])


@pytest.mark.parametrize("step", ["metadata", "set up", "local plan", "global plan", "transfer", "future"])
def test_storage_that_cannot_be_read(step, tmp_path):
    dcp.save({"a": torch.ones(2)}, checkpoint_id=tmp_path)
    reader = Reader(step, dcp.FileSystemReader(tmp_path).read_metadata())
    refuses(lambda: cause_of(lambda: dcp.load({"a": torch.ones(2)}, storage_reader=reader)), ValueError, step[:6])


@pytest.mark.filterwarnings("ignore:`.*_state_dict` is deprecated")
def test_deprecated_names_reset_the_storage():
    refuses(lambda: dcp.save_state_dict({}, Writer("reset")), ValueError, "no reset")
    refuses(lambda: dcp.load_state_dict({}, Reader("reset")), ValueError, "no reset")


def test_a_failure_that_is_raised_again_can_be_shown():
    """It then has the exception of all ranks as its context, which shows the failure."""
    try:
        cause_of(lambda: dcp.save({}, storage_writer=Writer("finish")))
    except ValueError as error:
        shown = "".join(traceback.format_exception(error))
    assert (
        shown.count("ValueError: no finish") == 3
    )  # in the first line of that of all ranks, in its traceback, and of itself


def saved(folder, state):
    dcp.save(state, checkpoint_id=folder / "saved")
    return folder / "saved"


def loaded(state, **options):
    return lambda folder: dcp.load(state, checkpoint_id=saved(folder, {"a": torch.ones(2)}), **options)


def wider(folder):
    dcp.load({"module": nn.Linear(3, 2)}, checkpoint_id=saved(folder, {"module": nn.Linear(2, 2)}))


def without_file(folder):
    path = saved(folder, {"a": torch.ones(2)})
    for file in path.glob("*.distcp"):
        file.unlink()
    dcp.load({"a": torch.ones(2)}, checkpoint_id=path)


NO_FILE = (RuntimeError, FileNotFoundError)


@pytest.mark.parametrize(
    ("call", "kinds", "text"),
    rows(
        ("missing key", loaded({"z": torch.ones(1)}), RuntimeError, "^Missing key in checkpoint state_dict: z"),
        ("size", loaded({"a": torch.ones(3)}), ValueError, "^Size mismatch between saved .*2.* and current: .*3.* a"),
        ("size of a module", wider, ValueError, "^Size mismatch"),
        ("no folder", lambda folder: dcp.load({}, checkpoint_id=folder / "none"), NO_FILE, "no such folder"),
        (
            "no checkpoint",
            lambda folder: dcp.FileSystemReader(folder).read_metadata(),
            NO_FILE,
            "it has no '.metadata'",
        ),
        ("no file", without_file, NO_FILE, "which has 'a'"),
        ("address to save", lambda _: dcp.save({}, checkpoint_id="abc://abc.abc"), RuntimeError, "^Cannot detect"),
        ("address to load", lambda _: dcp.load({}, checkpoint_id="abc://abc.abc"), RuntimeError, "^Cannot detect"),
        (
            "same name twice",
            lambda folder: saved(folder, {"a": {"b": 1}, "a.b": 2}),
            ValueError,
            "duplicated flatten key",
        ),
    ),
)
def test_checkpoints(call, kinds, text, tmp_path):
    refuses(lambda: cause_of(lambda: call(tmp_path)), kinds, text)


def trained():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def load_model(change, **options):
    def call():
        model, _ = trained()
        state = get_model_state_dict(model)
        change(state)
        set_model_state_dict(model, state, options=StateDictOptions(**options))

    return call


def load_optimizer(change):
    def call():
        model, optimizer = trained()
        state = get_optimizer_state_dict(model, optimizer)
        change(state)
        set_optimizer_state_dict(model, optimizer, state)

    return call


@pytest.mark.parametrize(
    ("call", "kinds", "text"),
    rows(
        ("missing key", load_model(lambda state: state.pop("0.weight")), RuntimeError, "Missing key"),
        ("unexpected key", load_model(lambda state: state.update(z=torch.ones(1))), RuntimeError, "Unexpected key.*z"),
        (
            "shape",
            load_model(lambda state: state.update({"0.bias": torch.ones(3)})),
            RuntimeError,
            "size mismatch.*0.bias",
        ),
        ("broadcast of parts", load_model(len, broadcast_from_rank0=True), ValueError, "full_state_dict must be True"),
        ("no state", lambda: set_model_state_dict(trained()[0], {}), RuntimeError, "^The option indicates"),
        (
            "no optimizer",
            lambda: get_optimizer_state_dict(trained()[0], []),
            RuntimeError,
            "^Optimizers are not passed in",
        ),
        ("no optimizer state", lambda: set_optimizer_state_dict(*trained(), None), RuntimeError, "^Missing key"),
        (
            "lost state",
            load_optimizer(lambda state: state["state"].pop("0.weight")),
            RuntimeError,
            "Missing .*'0.weight'",
        ),
        (
            "none at all",
            lambda: set_state_dict(*trained(), model_state_dict={}, optim_state_dict={}),
            RuntimeError,
            "^Missing key",
        ),
    ),
)
def test_state_dicts(call, kinds, text):
    refuses(call, kinds, text)
