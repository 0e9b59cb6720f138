"""Distributed checkpoints that go between the package and PyTorch: one program, run with either in real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import pytest

from tests.distributed.processes import ended

pytest.importorskip("torch", reason="needs torch")

pytestmark = pytest.mark.oracle

PROGRAM = """
import importlib, json, os, sys, warnings
import numpy as np

name, action, rank, size, job, folder = sys.argv[1:]
warnings.simplefilter("ignore")
torch = importlib.import_module(name)
dist = importlib.import_module(f"{name}.distributed")
dcp = importlib.import_module(f"{name}.distributed.checkpoint")
states = importlib.import_module(f"{name}.distributed.checkpoint.state_dict")
init_device_mesh = importlib.import_module(f"{name}.distributed.device_mesh").init_device_mesh
tensors = importlib.import_module(f"{name}.distributed.tensor")
Replicate, Shard, DTensor = tensors.Replicate, tensors.Shard, tensors.DTensor
nn, rank, size, saves = torch.nn, int(rank), int(size), action == "save"
dist.init_process_group("gloo", init_method=f"file://{job}", rank=rank, world_size=size)
mesh = init_device_mesh("cpu", (size,))
grid = init_device_mesh("cpu", (2, 2)) if size == 4 else None


def filled(shape, dtype):
    x = torch.arange(float(np.prod(shape, dtype=int))).reshape(shape).to(dtype)
    return x if saves else torch.zeros_like(x)


def split(dim):
    return [Shard(dim if saves else 1 - dim)]  # loaded with other placements


def place(x, placements):
    if grid is not None and len(placements) == 1 and placements[0] == Shard(0) and x.ndim == 2:
        return tensors.distribute_tensor(x, grid, [Shard(1), Shard(0)])
    return tensors.distribute_tensor(x, mesh, placements)


def sharded(_, module, mesh):
    for key, parameter in list(module.named_parameters(recurse=False)):
        part = tensors.distribute_tensor(parameter.detach(), mesh, [Shard(0)])
        module.register_parameter(key, nn.Parameter(part))


def step():
    optimizer.zero_grad()
    inputs = tensors.distribute_tensor(torch.arange(12.0).double().reshape(3, 4) / 12, mesh, [Replicate()])
    loss = model(inputs).square().sum()
    loss.backward()
    for p in model.parameters():
        p.grad = p.grad.redistribute(mesh, p.placements)  # with others, PyTorch's optimizer fails
    optimizer.step()
    return float(loss.full_tensor() if isinstance(loss, DTensor) else loss)


rng = np.random.default_rng(0)
model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
for p in model.parameters():
    p.data.copy_(torch.tensor(rng.standard_normal(tuple(p.shape)) * saves))
model = tensors.distribute_module(model, mesh, sharded)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05 if saves else 0.7, betas=(0.8, 0.99), amsgrad=True)
if saves:
    step()
model_state, optimizer_state = states.get_state_dict(model, optimizer)
state = {
    "rows": place(filled((7, 5), torch.float32), split(0)),
    "columns": place(filled((3, 10), torch.bfloat16), split(1)),
    "everywhere": place(filled((2, 3), torch.complex64), [Replicate()]),
    "small": place(filled((1,), torch.int64), [Shard(0)]),
    "whole and sharded": place(filled((4, 6), torch.float64), split(0)) if saves else filled((4, 6), torch.float64),
    "sharded and whole": filled((4, 6), torch.float64) if saves else place(filled((4, 6), torch.float64), split(0)),
    "kinds": {
        kind: filled((2, 3), getattr(torch, kind))
        for kind in ("bool", "uint8", "int8", "int16", "int32", "float16", "complex128", "uint16", "float8_e4m3fn")
    },
    "number": filled((), torch.int32),
    "empty": filled((0, 3), torch.float32),
    "view": filled((20, 30), torch.float32)[2:9:3, 5:8].t(),
    "leaf": nn.Parameter(filled((2,), torch.float32)),
    "objects": {
        "step": 3, "betas": (0.9, 0.99), "text": "\\u00fc", "none": None, "list": [1, [2, "three"]], "bytes": b"\\x00",
        "dtype": torch.float16, "shape": torch.Size([2, 3]), "device": torch.device("cpu"), "set": {1, 2},
        "large": 1 << 70, "nested": {"lists": [torch.ones(1) * saves, {"deep": 1.5}], 7: {"x.y": 5}},
    },
    "model": model_state,
    "optimizer": optimizer_state,
}
if saves:
    dcp.save(state, checkpoint_id=folder)
else:
    for key in state["objects"]:
        if key != "nested":
            state["objects"][key] = "not loaded"
    state["objects"]["nested"]["lists"][1]["deep"] = state["objects"]["nested"][7]["x.y"] = "not loaded"
    dcp.load(state, checkpoint_id=folder)
    states.set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )


def told(x):
    if isinstance(x, torch.Tensor):
        x = (x.full_tensor() if isinstance(x, DTensor) else x).detach()
        return [str(x.dtype), str(x.to(torch.complex128).tolist())]
    if isinstance(x, dict):
        return {str(key): told(value) for key, value in sorted(x.items(), key=lambda pair: str(pair[0]))}
    return [told(part) for part in x] if type(x) is list else f"{type(x).__name__} {x}"


found = json.dumps([told(state), round(step(), 9)])
assert ("weft" if name == "torch" else "torch") not in sys.modules
dist.destroy_process_group()
sys.stdout.write("\\n" + found + "\\n")
"""

CONVERSION = """
import importlib, json, sys, warnings

name, action, source, target = sys.argv[1:]
warnings.simplefilter("ignore")
torch = importlib.import_module(name)
utils = importlib.import_module(f"{name}.distributed.checkpoint.format_utils")
if action == "save safetensors":
    dcp = importlib.import_module(f"{name}.distributed.checkpoint")
    writer = dcp.HuggingFaceStorageWriter(target, save_distributed=True)
    dcp.save({"x": torch.arange(6.0).reshape(2, 3), "y": torch.ones(2, dtype=torch.bfloat16)}, storage_writer=writer)
elif action == "load safetensors":
    dcp = importlib.import_module(f"{name}.distributed.checkpoint")
    state = {"x": torch.zeros(2, 3), "y": torch.zeros(2)}
    dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(source))
    sys.stdout.write(json.dumps([state["x"].tolist(), state["y"].tolist()]))
elif action != "tell":
    getattr(utils, action)(source, target)
else:
    def told(x):
        if isinstance(x, torch.Tensor):
            return [str(x.dtype), list(x.shape), str(x.to(torch.complex128).tolist())]
        if isinstance(x, dict):
            return {str(key): told(value) for key, value in sorted(x.items(), key=lambda pair: str(pair[0]))}
        return [told(part) for part in x] if type(x) is list else f"{type(x).__name__} {x}"

    sys.stdout.write(json.dumps(told(torch.load(source, weights_only=True))))
assert ("weft" if name == "torch" else "torch") not in sys.modules
"""


def results(commands):
    """What processes print in their last lines."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    found = []
    for code, output, errors in ended(
        [subprocess.Popen([sys.executable, "-c", *command], text=True, **pipes) for command in commands]
    ):
        assert code == 0, errors
        found.append(json.loads(output.splitlines()[-1]) if output.strip() else None)
    return found


def run(name, action, size, folder):
    """What the ranks of one job find; all find the same."""
    job = folder.parent / f"job of {name} to {action}"
    found = results([PROGRAM, name, action, str(rank), str(size), str(job), str(folder)] for rank in range(size))
    assert all(result == found[0] for result in found)
    return found[0]


@pytest.mark.parametrize(("saving", "ranks"), [(2, 4), (4, 2), (4, 3)])
@pytest.mark.parametrize(("writer", "reader"), [("weft", "torch"), ("torch", "weft")])
def test_what_one_has_saved_the_other_loads(writer, reader, saving, ranks, tmp_path):
    saved = run(writer, "save", saving, tmp_path / "checkpoint")
    assert run(reader, "load", ranks, tmp_path / "checkpoint") == saved


def converted(folder, name, action, source="", target=""):
    """What a process finds that does a step of a conversion in a folder."""
    (found,) = results([[CONVERSION, name, action, str(folder / source), str(folder / target)]])
    return found


@pytest.mark.parametrize(("first", "second"), [("weft", "torch"), ("torch", "weft")])
def test_files_and_checkpoints_become_each_other(first, second, tmp_path):
    """A checkpoint of one, a file by the other, a checkpoint by the first, a file by the second."""
    step = partial(converted, tmp_path)
    run(first, "save", 2, tmp_path / "checkpoint")
    step(first, "dcp_to_torch_save", "checkpoint", "same.pt")
    step(second, "dcp_to_torch_save", "checkpoint", "other.pt")
    step(first, "torch_save_to_dcp", "other.pt", "again")
    step(second, "dcp_to_torch_save", "again", "again.pt")
    expected = step(first, "tell", "same.pt")
    assert len(expected) == 14
    for name in (first, second):
        for file in ("same.pt", "other.pt", "again.pt"):
            assert step(name, "tell", file) == expected, (name, file)


@pytest.mark.parametrize(("writer", "reader"), [("weft", "torch"), ("torch", "weft")])
def test_safetensors_of_one_the_other_loads(writer, reader, tmp_path):
    converted(tmp_path, writer, "save safetensors", target="parts")
    assert converted(tmp_path, reader, "load safetensors", "parts") == [[[0, 1, 2], [3, 4, 5]], [1, 1]]
