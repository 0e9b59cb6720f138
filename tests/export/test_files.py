"""Files of exported programs."""

from __future__ import annotations

import io
import json
import random
import time
import zipfile
from typing import Any, cast

import jax
import jax.export
import numpy as np
import pytest

import weft as torch
from tests.mutating import mutated_often
from weft import nn
from weft.errors import ArgumentError, CheckpointError, NoFileError, ProgramError
from weft.export import Dim, export, load, save


@pytest.fixture
def program():
    return export(nn.Linear(4, 2), (torch.ones(3, 4),), dynamic_shapes=({0: Dim("batch", max=9)},))


@pytest.fixture
def content(program):
    file = io.BytesIO()
    save(program, file)
    return file.getvalue()


def test_what_is_loaded_is_what_was_saved(program, tmp_path):
    save(program, tmp_path / "program.pt2", extra_files={"note": "é"})
    extra: dict[str, Any] = {"note": ""}
    loaded = load(tmp_path / "program.pt2", extra_files=extra)
    assert extra["note"] == "é"
    assert repr(loaded) == repr(program)
    x = torch.randn(5, 4)
    np.testing.assert_allclose(loaded(x).numpy(), program(x).detach().numpy(), rtol=1e-6)
    assert [(name, p.requires_grad) for name, p in loaded.named_parameters()] == [("weight", True), ("bias", True)]
    with pytest.raises(ProgramError, match=r"to be <= 9, but got 10"):
        loaded(torch.ones(10, 4))


def gradient_of(x):
    assert x.grad is not None
    return x.grad


def test_gradients_are_saved_if_they_are_wanted(program, tmp_path):
    save(program, tmp_path / "plain.pt2")
    assert not load(tmp_path / "plain.pt2")(torch.ones(2, 4)).requires_grad
    save(program, tmp_path / "program.pt2", derivatives=1)
    loaded = load(tmp_path / "program.pt2")
    loaded(torch.ones(2, 4)).sum().backward()
    assert torch.equal(gradient_of(loaded.state_dict["bias"]), torch.tensor([2.0, 2.0]))
    with pytest.raises(ProgramError, match="derivatives=1 is not possible"):
        save(load(tmp_path / "plain.pt2"), tmp_path / "other.pt2", derivatives=1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int8", "bool", "complex64"])
def test_types(dtype, tmp_path):
    value = torch.tensor([0, 1, 1]).to(getattr(torch, dtype))
    program = export(lambda: value[1:], (), state={"value": value})
    save(program, tmp_path / "program.pt2")
    loaded = load(tmp_path / "program.pt2")
    assert torch.equal(loaded(), value[1:])
    assert loaded.state_dict["value"].dtype == value.dtype


def test_numpy_and_jax_read_it(program, tmp_path):
    save(program, tmp_path / "program.pt2")
    with np.load(tmp_path / "program.pt2") as file:
        exported = jax.export.deserialize(bytearray(file["program"]))
        state = {name: file[f"state/{name}"] for name in json.loads(file["about.json"])["state"]}
    (found,), changed = exported.call(state, np.ones((2, 4), np.float32))
    np.testing.assert_allclose(found, program(torch.ones(2, 4)).detach().numpy(), rtol=1e-6)
    assert changed == {}


@pytest.mark.parametrize("at", [0.02, 0.3, 0.5, 0.7])
def test_a_damaged_file(content, at, tmp_path):
    path = tmp_path / "program.pt2"
    place = int(at * len(content))
    path.write_bytes(content[:place])
    with pytest.raises(CheckpointError, match=r"cannot load .*program.pt2: it is truncated"):
        load(path)
    path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
    with pytest.raises(CheckpointError, match=r"cannot load .*program.pt2: "):
        load(path)


def without(content, name, replacement=None):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for member in old.namelist():
            if member != name:
                new.writestr(member, old.read(member))
            elif replacement is not None:
                new.writestr(member, replacement)
    return io.BytesIO(out.getvalue())


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.mark.parametrize(
    ("member", "replacement", "text"),
    [
        ("about.json", None, "it is no exported program: it has no members"),
        ("about.json", b"{}", "it is no exported program of this package"),
        (
            "about.json",
            b'{"format": "weft.export", "version": 9}',
            "it has version 9 of the format, and this package reads",
        ),
        ("about.json", b'{"format": "weft.export", "version": 1}', r"it is damaged \(KeyError"),
        ("about.json", b"\xff", r"it is damaged \(UnicodeDecodeError"),
        ("program", b"nothing", "its program is damaged"),
        ("state/weight.npy", None, "the member 'state/weight.npy' is missing"),
        ("state/weight.npy", b"nothing", r"it is damaged \(ValueError"),
        ("state/weight.npy", npy(np.ones(3)), r"the tensor 'weight' is float64\[3\]|\(3,\)"),
        (
            "state/weight.npy",
            npy(np.ones(3)).replace(b"(3,), }" + b" " * 12, b"(1000000000000,), }"),
            r"the tensor 'weight' is float64\[1000000000000\]",
        ),
        (
            "state/weight.npy",
            npy(np.array([{}], object)),
            r"the tensor 'weight' is object\[1\] instead of",
        ),
    ],
)
def test_files_that_are_no_programs(content, member, replacement, text):
    with pytest.raises(CheckpointError, match=text):
        load(without(content, member, replacement))


def test_a_program_that_is_not_the_one_that_was_saved(content):
    """jax may read it, and find out when it runs it."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        program = bytearray(file.read("program"))
    program[len(program) // 2] ^= 1
    with pytest.raises(CheckpointError, match="its program is damaged: it is not the one that was saved"):
        load(without(content, "program", bytes(program)))


IMPOSSIBLE = [
    b"[]",
    b"{}",
    b"3",
    b'{"none": 1}',
    b'{"tensor": -1}',
    b'{"tensor": 99}',
    b'{"tensor": true}',
    b'{"tuple": 3}',
    b'{"dict": [["a"]]}',
    b'{"list": [{"dict": [["a", {"tuple": [{"tensor": "0"}]}]]}]}',
    b'{"tuple": [' * 100_000 + b"]}" * 100_000,
]


@pytest.mark.parametrize("field", ["args", "kwargs", "outputs"])
@pytest.mark.parametrize("structure", IMPOSSIBLE, ids=lambda structure: structure[:40].decode())
def test_impossible_structures(content, field, structure):
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        about = json.loads(file.read("about.json"))
    text = json.dumps({**about, field: "here"}).encode().replace(b'"here"', structure)
    with pytest.raises(CheckpointError, match="it is damaged"):
        load(without(content, "about.json", text))


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 30_000), marks=pytest.mark.soak)], ids=len)
def test_descriptions_that_say_anything(content, seeds):
    """They are read, or refused with the documented error, quickly; what is read can be shown."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        about = json.loads(file.read("about.json"))
    for seed in seeds:
        text = json.dumps(mutated_often(about, random.Random(seed))).encode()
        start = time.process_time()
        try:
            program = load(without(content, "about.json", text))
        except CheckpointError:
            continue
        assert repr(program)
        assert time.process_time() - start < 2, seed


def test_a_checkpoint_is_no_program(tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "model.weft")
    with pytest.raises(CheckpointError, match="it is no exported program"):
        load(tmp_path / "model.weft")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(CheckpointError, match="it is truncated or damaged"):
        load(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")


def test_what_is_no_file(program):
    with pytest.raises(NoFileError, match="'f' must be a path or a file open for writing, got int"):
        save(program, 3)
    with pytest.raises(NoFileError, match="'f' must be a path or a file open for reading, got int"):
        load(3)
    with pytest.raises(ArgumentError, match="The 'ep' parameter must be an instance of 'ExportedProgram', got 'int'"):
        save(cast("Any", 3), "x")


def test_a_backward_pass_through_a_loaded_program_says_what_is_missing(tmp_path):
    model = torch.nn.Linear(2, 1)
    save(export(model, (torch.ones(3, 2),)), tmp_path / "plain.pt2")
    loaded = load(tmp_path / "plain.pt2")
    text = r"does not have a grad_fn; no gradients flow through .*Linear.*, as .*derivatives=1\)$"
    with pytest.raises(RuntimeError, match=text):
        loaded(torch.ones(3, 2)).sum().backward()
