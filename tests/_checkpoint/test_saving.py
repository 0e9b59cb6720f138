"""What is saved comes back, and files that are damaged or hostile are refused."""

from __future__ import annotations

import io
import math
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft import nn, serialization
from weft.distributed import checkpoint
from weft.errors import CheckpointError


def again(obj, **options):
    file = io.BytesIO()
    weft.save(obj, file)
    file.seek(0)
    return weft.load(file, **options)


def test_what_refuses_to_be_pickled_says_why(tmp_path):
    class Reference:
        def __reduce__(self):
            raise RuntimeError("a reference can only be pickled when it is sent")

    with pytest.raises(RuntimeError, match=r"^a reference can only be pickled when it is sent$"):
        weft.save([Reference()], tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_plain_objects_come_back():
    obj = {
        "a": [1, 2.5, -math.inf, None, True, 2**80],
        2: ("x", {3, 4}, frozenset([5])),
        "b": b"\x00\xff",
        "c": 1 - 2j,
        "d": weft.bfloat16,
        "e": weft.device("cpu"),
        "f": weft.Size([2, 3]),
        "g": OrderedDict(z=1, y=2),
        "h": {},
        "i": bytearray(b"xy"),
        "j": np.float64(2.5),
        "k": np.int16(-3),
        "l": np.bool_(True),
        "m": np.complex64(1j),
    }
    found = again(obj)
    assert found == obj
    assert [type(x) for x in found.values()] == [type(x) for x in obj.values()]
    assert math.isnan(again(math.nan))


@pytest.mark.parametrize("name", ["bool", "uint8", "int64", "float16", "bfloat16", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_tensors_come_back(name, shape):
    tensor = weft.arange(6).reshape(2, 3).to(getattr(weft, name)) if shape == (2, 3) else weft.ones(shape)
    found = again(tensor.to(getattr(weft, name)))
    assert (found.dtype, found.shape) == (getattr(weft, name), shape)
    assert found.tolist() == tensor.to(getattr(weft, name)).tolist()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32", "complex128"])
def test_numpy_arrays_come_back(dtype):
    array = np.arange(6).reshape(2, 3).T.astype(dtype)
    first, second = again([array, array])
    assert first is second
    assert first.dtype == array.dtype
    assert np.array_equal(first, array)
    first[0] = 1  # they are the program's own


def test_what_was_shared_stays_shared():
    layer = nn.Linear(2, 2)
    tied = nn.Linear(2, 2)
    tied.weight = layer.weight
    found = again([layer.weight, tied.weight, layer.state_dict(), weft.ones(1, requires_grad=True), nn.Buffer()])
    assert found[0] is found[1]
    assert isinstance(found[0], nn.Parameter)
    assert isinstance(found[4], nn.Buffer)
    assert found[2]["weight"]._read().content is found[0]._read().content
    assert found[2]._metadata == {"": {"version": 1}}
    assert (found[3].requires_grad, found[2]["weight"].requires_grad) == (True, False)


def test_aliases_stay_aliases_and_their_elements_are_saved_once():
    base = weft.arange(4000.0).reshape(4, 1000).clone()
    parameter = nn.Parameter(weft.zeros(6))
    obj = {
        "row": base[1],
        "base": base,
        "columns": base.t(),
        "same": base.detach(),
        "bits": base.view(weft.int32),
        "parameter": parameter,
        "part": parameter.detach()[2:4],
        "wide": base[0, 1:2].expand(3),
    }
    file = io.BytesIO()
    weft.save(obj, file)
    assert file.tell() < 1.5 * base.nbytes
    file.seek(0)
    found = weft.load(file)
    assert [x.tolist() for x in found.values()] == [x.tolist() for x in obj.values()]
    assert found["columns"].stride() == (1, 1000)
    found["row"].zero_()
    found["bits"][0, 0] = 1065353216
    found["part"].fill_(7)
    assert (found["base"][1].sum(), found["columns"][:, 1].sum(), found["same"][0, 0]) == (0, 0, 1)
    assert found["parameter"].tolist() == [0, 0, 7, 7, 0, 0]
    assert found["parameter"].requires_grad
    assert not found["row"]._is_view()


def test_a_lone_view_is_saved_without_the_rest():
    file = io.BytesIO()
    weft.save(weft.ones(1000)[:2], file)
    assert file.tell() < 2000


def test_training_goes_on_from_a_file(tmp_path):
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = weft.optim.AdamW(net.parameters())
    net(weft.ones(3, 2)).sum().backward()
    optimizer.step()
    path = tmp_path / "last.weft"
    weft.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, path)
    found = weft.load(path, map_location="cpu")
    twin = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    twin.load_state_dict(found["net"])
    assert twin[0].weight.tolist() == net[0].weight.tolist()
    weft.optim.AdamW(twin.parameters()).load_state_dict(found["optimizer"])
    assert found["optimizer"]["param_groups"] == optimizer.state_dict()["param_groups"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.weft"]


def test_the_file_is_a_zip_of_aligned_stored_members(tmp_path):
    path = tmp_path / "x.weft"
    weft.save([weft.ones(3), weft.zeros(100)], path)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == [
            "x/data.pkl", "x/.format_version", "x/.storage_alignment", "x/byteorder",
            "x/data/0", "x/data/1", "x/version", "x/.data/serialization_id",
        ]  # fmt: skip
        for info in archive.infolist():
            name, extra = struct.unpack_from("<HH", content, info.header_offset + 26)
            assert (info.header_offset + 30 + name + extra) % 64 == 0
            assert info.compress_type == zipfile.ZIP_STORED
    weft.save([weft.ones(3), weft.zeros(100)], path)
    assert path.read_bytes() == content


UNSAVABLE = [
    ("{'a': [1, 2, 3, lambda: 0]}", r"obj\['a'\]\[3\]: Can't .*<lambda>"),
    ("[1, (x for x in ())]", r"obj\[1\]: cannot pickle 'generator' object"),
    ("nn.Sequential(nn.Linear(1, 1), marked)", r"obj\.1\.hidden: Can't .*<lambda>"),
]


@pytest.mark.parametrize(("text", "message"), UNSAVABLE, ids=[case[0] for case in UNSAVABLE])
def test_what_cannot_be_saved_is_named_and_nothing_is_written(text, message, tmp_path):
    marked = nn.ReLU()
    marked.hidden = lambda: 0
    path = tmp_path / "x.weft"
    weft.save("before", path)
    with pytest.raises(pickle.PicklingError, match=f"^cannot save {message}"):
        weft.save(eval(text), path)
    assert weft.load(path) == "before"
    assert len(list(tmp_path.iterdir())) == 1
    file = io.BytesIO()
    with pytest.raises(CheckpointError):
        weft.save(eval(text), file)
    assert file.getvalue() == b""


def test_what_is_nested_too_deeply_is_not_saved(tmp_path):
    deep = reduce(lambda inner, _: [inner], range(10_000), 0)
    with pytest.raises(CheckpointError, match=r"^cannot save obj: its objects are nested too deeply$"):
        weft.save(deep, tmp_path / "x.weft")
    assert list(tmp_path.iterdir()) == []


FULL = """
import resource, sys, weft
weft.save([weft.zeros(1)], sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    weft.save([weft.zeros(100_000)], sys.argv[1])
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.weft", "x.safetensors"])
def test_a_full_disk_leaves_the_old_file(name, tmp_path):
    path = tmp_path / name
    script = FULL if name == "x.weft" else FULL.replace("[weft", "{'a': weft").replace(")]", ")}")
    found = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert found.stdout == "File too large\n"
    assert len(weft.load(path)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_where_nothing_can_be_written(tmp_path):
    with pytest.raises(CheckpointError, match=r"^cannot save .*/no/x: Parent directory .*/no does not exist\.$"):
        weft.save(1, tmp_path / "no" / "x")
    with pytest.raises(IsADirectoryError):
        weft.save(1, tmp_path)
    with pytest.raises(IsADirectoryError):
        weft.load(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_links_and_devices_stay(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    weft.save("old", target)
    link.symlink_to(target)
    weft.save("new", link)
    assert link.is_symlink()
    assert weft.load(target) == "new"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        weft.save("through", pipe)
        content = reader.communicate()[0]
    assert weft.load(io.BytesIO(content)) == "through"
    assert pipe.is_fifo()


def test_only_paths_and_files_are_taken():
    for kind in (AttributeError, TypeError):
        with pytest.raises(
            kind, match=r"^expected 'f' to be string, path, or a file-like object with a 'write' attrib"
        ):
            weft.save(1, 3)
        with pytest.raises(kind, match=r"^'int' object has no attribute 'seek'. You can only torch.load from a file t"):
            weft.load(3)
    with pytest.raises(FileNotFoundError):
        weft.load("/nowhere/x.weft")


# --- damaged files ---


def content_of(obj):
    file = io.BytesIO()
    weft.save(obj, file)
    return file.getvalue()


def refused(content, reason):
    with pytest.raises(CheckpointError, match=f"^cannot load <BytesIO>: {reason}"):
        weft.load(io.BytesIO(content))


def test_every_truncation_is_noticed():
    content = content_of([weft.ones(100), "x"])
    for size in range(0, len(content), 7):
        refused(content[:size], "it is (truncated|no checkpoint|empty)")


@pytest.mark.parametrize(("content", "kind"), [(b"", EOFError), (b"no archive at all", pickle.UnpicklingError)])
def test_what_is_no_checkpoint_at_all_is_refused(content, kind):
    with pytest.raises(kind) as caught:
        weft.load(io.BytesIO(content))
    assert isinstance(caught.value, CheckpointError)


def test_a_file_that_was_read_to_its_end_is_empty():
    file = io.BytesIO()
    weft.save(1, file)
    with pytest.raises(EOFError):
        weft.load(file)


def test_only_what_is_not_weights_alone_takes_a_pickle_module():
    content = content_of([1])
    assert weft.load(io.BytesIO(content), pickle_module=pickle) == [1]
    with pytest.raises(RuntimeError, match=r"^Can not safely load weights when explicit pickle_module is specified$"):
        weft.load(io.BytesIO(content), pickle_module=pickle, weights_only=True)


def test_a_flipped_bit_in_the_elements_is_noticed():
    content = bytearray(content_of(weft.zeros(100)))
    at = content.index(bytes(400)) + 200
    content[at] ^= 1
    refused(bytes(content), r"the member 'archive/data/0' is damaged \(Bad CRC-32 for file 'archive/data/0'\)")


def test_a_flipped_bit_in_a_large_member_is_noticed():
    content = bytearray(content_of([weft.zeros(1 << 19), weft.zeros(2)]))
    content[1 << 20] ^= 1
    refused(bytes(content), r"the member 'archive/data/0' is damaged \(Bad CRC-32 for file 'archive/data/0'\)")


def test_the_error_names_the_file(tmp_path):
    path = tmp_path / "x.weft"
    path.write_bytes(b"hello")
    with pytest.raises(
        CheckpointError, match=rf"^cannot load {path}: it is no checkpoint: neither a zip archive, nor "
    ):
        weft.load(path)


# --- locations and damage ---


def test_a_location_maps_saved_devices():
    assert str(again(weft.ones(1), map_location={"cpu": "cpu"}).device) == "cpu"
    assert str(again(weft.ones(1), map_location=weft.device("cpu")).device) == "cpu"


@given(data=st.data())
def test_damage_is_a_checkpoint_error_or_harmless(data):
    content = bytearray(content_of({"a": weft.ones(3), "b": [1, "x", {"c": (1.5, None)}], "d": {1, 2}}))
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=4)):
        content[at] = byte
    try:
        weft.load(io.BytesIO(bytes(content[: data.draw(st.integers(0, 2 * len(content)))])))
    except CheckpointError as error:
        assert str(error).startswith("cannot load <BytesIO>: ")  # noqa: PT017  most damage is noticed, not all


# --- extra files ---


def test_extra_files(tmp_path):
    path = tmp_path / "x.weft"
    weft.save(weft.ones(2), path, _extra_files={"notes/from.txt": "ä", "raw": b"\xff"})
    extra = {"notes/from.txt": "", "raw": ""}
    assert weft.load(path, _extra_files=extra).tolist() == [1, 1]
    assert extra == {"notes/from.txt": "ä".encode(), "raw": b"\xff"}
    assert zipfile.ZipFile(path).namelist()[-2:] == ["x/extra/notes/from.txt", "x/extra/raw"]
    with pytest.raises(CheckpointError, match=r"x.weft: the member 'x/extra/other' is missing$"):
        weft.load(path, _extra_files={"other": ""})


def save_program(path):
    weft.export.save(weft.export.export(weft.nn.Linear(2, 1), (weft.ones(3, 2),)), path)
    extra = {"producer_info.json": ""}
    weft.export.load(path, extra_files=extra)
    assert extra == {"producer_info.json": '{"user": "me"}'}


def save_trace(path):
    weft.jit.save(weft.jit.trace(weft.nn.Linear(2, 1), weft.ones(3, 2)), path, {"b": "own"})
    extra = {"producer_info.json": "", "b": ""}
    weft.jit.load(path, _extra_files=extra)
    assert extra == {"producer_info.json": b'{"user": "me"}', "b": b"own"}


def save_distributed(path):
    checkpoint.save({"x": weft.ones(3)}, checkpoint_id=path, no_dist=True)
    target = {"x": weft.zeros(3)}
    checkpoint.load(target, checkpoint_id=path, no_dist=True)
    assert target["x"].tolist() == [1, 1, 1]


def test_the_hook_adds_files_to_every_checkpoint(tmp_path):
    serialization.set_extra_files_hook(lambda: {"producer_info.json": '{"user": "me"}', "b": "hook"})
    try:
        extra = {"producer_info.json": b"", "b": b"", "c": b""}
        file = io.BytesIO()
        weft.save(1, file, _extra_files={"b": "own", "c": "c"})
        file.seek(0)
        assert weft.load(file, _extra_files=extra) == 1
        assert extra == {"producer_info.json": b'{"user": "me"}', "b": b"own", "c": b"c"}
        for save in (save_program, save_trace, save_distributed):
            save(tmp_path / "file")
            (path,) = [path for path in (tmp_path / "file", tmp_path / "file" / "__0_0.distcp") if path.is_file()]
            with zipfile.ZipFile(path) as archive:
                (name,) = [name for name in archive.namelist() if name.endswith("extra/producer_info.json")]
                assert archive.read(name) == b'{"user": "me"}'
            path.unlink()
            assert save is save_distributed or not (tmp_path / "file").exists()
        serialization.set_extra_files_hook(lambda: ["a"])
        with pytest.raises(TypeError, match=r"must return contents by name, got \['a'\]$"):
            weft.save(1, io.BytesIO())
    finally:
        serialization.set_extra_files_hook(None)
    with pytest.raises(TypeError, match="expected a function without arguments, or None, got 3"):
        serialization.set_extra_files_hook(3)
    assert not any("extra" in name for name in zipfile.ZipFile(io.BytesIO(content_of(1))).namelist())


@pytest.mark.parametrize("name", ["", "..", "../x", "a/../x", "/x", "a//b", "a\\b", "c:x", 3, "."])
def test_names_of_extra_files_stay_inside(name):
    with pytest.raises(
        CheckpointError, match=r"^cannot save the extra file .*: its name must be a relative path without"
    ):
        weft.save(1, io.BytesIO(), _extra_files={name: ""})


def test_extra_files_are_text_or_bytes():
    with pytest.raises(
        CheckpointError, match=r"^cannot save the extra file 'x': its content must be a string or bytes, "
    ):
        weft.save(1, io.BytesIO(), _extra_files={"x": 3})
    with pytest.raises(
        CheckpointError, match=r"^cannot save extra files as safetensors: give save_file\(\) their text"
    ):
        weft.save({}, "x.safetensors", _extra_files={"x": ""})


# --- memory ---


def test_mapped_elements_are_the_files(tmp_path):
    path = tmp_path / "x.weft"
    weft.save({"a": weft.arange(1000), "b": weft.tensor([True, False])}, path)
    found = weft.load(path, mmap=True)
    assert (found["a"].sum().item(), found["b"].tolist()) == (499500, [True, False])
    found["a"].zero_()
    assert weft.load(path)["a"].sum().item() == 499500


PEAK = """
import resource, sys, numpy, weft
state = {str(i): weft.from_numpy(numpy.ones(1 << 21, "f4")) for i in range(8)}
weft.save([weft.ones(1)], sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
weft.save(state, sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.weft", "x.safetensors"])
def test_saving_takes_no_second_copy(name, tmp_path):
    script = PEAK if name == "x.weft" else PEAK.replace("[weft.ones(1)]", "{'a': weft.ones(1)}")
    found = subprocess.run([sys.executable, "-c", script, tmp_path / name], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 32 << 10  # KiB; the tensors have 64 MiB
