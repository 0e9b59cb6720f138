"""Checkpoints: what comes back, and what is made of files that are damaged or hostile."""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile
from collections import OrderedDict

import pytest

import weft
from weft import nn
from weft.errors import CheckpointError


def again(obj, **options):
    file = io.BytesIO()
    weft.save(obj, file)
    file.seek(0)
    return weft.load(file, **options)


def test_plain_objects_come_back():
    obj = {
        "a": [1, 2.5, -math.inf, None, True, 2**80], 2: ("x", {3, 4}, frozenset([5])), "b": b"\x00\xff", "c": 1 - 2j,
        "d": weft.bfloat16, "e": weft.device("cpu"), "f": weft.Size([2, 3]), "g": OrderedDict(z=1, y=2), "h": {},
    }  # fmt: skip
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


def test_what_was_shared_stays_shared():
    layer = nn.Linear(2, 2)
    tied = nn.Linear(2, 2)
    tied.weight = layer.weight
    found = again([layer.weight, tied.weight, layer.state_dict(), weft.ones(1, requires_grad=True), nn.Buffer()])
    assert found[0] is found[1]
    assert isinstance(found[0], nn.Parameter)
    assert isinstance(found[4], nn.Buffer)
    assert found[2]["weight"]._read().array is found[0]._read().array
    assert found[2]._metadata == {"": {"version": 1}}
    assert (found[3].requires_grad, found[2]["weight"].requires_grad) == (True, False)


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
        assert archive.namelist() == ["weft.json", "data/0", "data/1"]
        for info in archive.infolist():
            name, extra = struct.unpack_from("<HH", content, info.header_offset + 26)
            assert (info.header_offset + 30 + name + extra) % 64 == 0
            assert info.compress_type == zipfile.ZIP_STORED
    weft.save([weft.ones(3), weft.zeros(100)], path)
    assert path.read_bytes() == content


UNSAVABLE = [
    ("{'a': [1, 2, 3, object()]}", r"obj\['a'\]\[3\], which is of type builtins.object: a checkpoint holds"),
    ("[nn.ReLU()]", r"obj\[0\], which is of type weft.nn._activation.ReLU: a checkpoint holds"),
    ("{object: 1}", r"obj key <class 'object'>, which is of type builtins.type"),
    ("loop", r"obj\[0\]: it contains itself"),
]


@pytest.mark.parametrize(("text", "message"), UNSAVABLE, ids=[case[0] for case in UNSAVABLE])
def test_what_cannot_be_saved_is_named_and_nothing_is_written(text, message, tmp_path):
    loop = []
    loop.append(loop)
    path = tmp_path / "x.weft"
    weft.save("before", path)
    with pytest.raises(CheckpointError, match=f"^cannot save {message}"):
        weft.save(eval(text), path)
    assert weft.load(path) == "before"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.weft"
    weft.save("before", path)

    def full(_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=r"^disk full$"):
        weft.save("after", path)
    assert weft.load(path) == "before"
    assert len(list(tmp_path.iterdir())) == 1


def test_only_paths_and_files_are_taken():
    with pytest.raises(TypeError, match=r"^save\(\): expected a path or a file open for writing, got int$"):
        weft.save(1, 3)
    with pytest.raises(TypeError, match=r"^load\(\): expected a path or a file open for reading, got int$"):
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
        refused(content[:size], "it is (truncated|no checkpoint)")


def test_a_flipped_bit_in_the_elements_is_noticed():
    content = bytearray(content_of(weft.zeros(100)))
    at = content.index(bytes(400)) + 200
    content[at] ^= 1
    refused(bytes(content), r"the member 'data/0' is damaged \(Bad CRC-32 for file 'data/0'\)")


def test_the_error_names_the_file(tmp_path):
    path = tmp_path / "x.weft"
    path.write_bytes(b"hello")
    with pytest.raises(CheckpointError, match=rf"^cannot load {path}: it is no checkpoint \(File is not a zip file\)$"):
        weft.load(path)


# --- hostile files ---

TENSOR = {
    "kind": "Tensor", "dtype": "float32", "shape": [2], "device": "cpu", "requires_grad": False, "data": 0,
}  # fmt: skip


def crafted(obj=None, *, tensors=(), members=(("data/0", bytes(8)),), compression=zipfile.ZIP_STORED, **header):
    """An archive with any description and members."""
    described = {"format": "weft", "version": 1, "tensors": list(tensors), "object": obj, **header}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("weft.json", json.dumps(described))
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


AT_0 = {"is": "tensor", "at": 0}
HOSTILE = [
    (crafted(members=[("../evil", b"")]), r"it has a member of unexpected name '\.\./evil'"),
    (crafted(members=[("/etc/passwd", b"")]), "it has a member of unexpected name '/etc/passwd'"),
    (crafted(members=[("data/00", b"")]), "it has a member of unexpected name 'data/00'"),
    (crafted(members=[("data/0", bytes(10**6))], compression=zipfile.ZIP_DEFLATED), "the member .* is compressed"),
    (crafted(version=2), "its format is version 2, and this package reads up to 1; update the package"),
    (crafted(version="x"), "its version is 'x', which is none"),
    (crafted(format="pickle"), "it is no checkpoint of this package"),
    (crafted({"is": "object"}), "it holds an object of unknown kind 'object'"),
    (crafted({"is": ["dict"]}), "unhashable type"),
    (crafted({"is": "dict", "items": 3}), "the description of a dict lacks a valid 'items'"),
    (crafted({"is": "dict", "items": [[1]]}), "not enough values to unpack"),
    (crafted({"is": "dtype", "name": "float31"}), "it holds elements of unknown type 'float31'"),
    (crafted({"is": "device", "name": "moon"}), "Expected one of .* device type at start of device string: moon"),
    (crafted({"is": "bytes", "base64": "?"}), ".*"),
    (crafted({"is": "set", "items": [[1]]}), "unhashable type"),
    (crafted({"is": "tensor", "at": 1}), "it refers to tensor 1, and has 0"),
    (crafted(AT_0, tensors=[3]), ".*"),
    (
        crafted(AT_0, tensors=[{**TENSOR, "shape": [10**30]}]),
        "the member 'data/0' has 8 bytes, and a float32 tensor of shape",
    ),
    (crafted(AT_0, tensors=[{**TENSOR, "shape": [-2, -1]}]), r"it has a tensor of impossible shape \[-2, -1\]"),
    (crafted(AT_0, tensors=[{**TENSOR, "dtype": "object"}]), "it holds elements of unknown type 'object'"),
    (crafted(AT_0, tensors=[{**TENSOR, "kind": "Module"}]), "it has a tensor of unknown kind 'Module'"),
    (crafted(AT_0, tensors=[{**TENSOR, "data": 7}]), "the member 'data/7' is missing"),
    (crafted(AT_0, tensors=[{**TENSOR, "device": "tpu:99"}]), "tpu:99: this machine has no tpu device"),
    (crafted(AT_0, tensors=[{**TENSOR, "dtype": "int32", "requires_grad": True}]), "only Tensors of floating point"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "reason"), HOSTILE)
def test_hostile_files_are_refused(content, reason):
    refused(content, reason)


def test_duplicate_members_are_refused():
    with pytest.warns(UserWarning, match="^Duplicate name"):
        content = crafted(members=[("data/0", b"a"), ("data/0", b"b")])
    refused(content, "it has two members 'data/0'")


def test_deep_nesting_is_refused():
    deep = "[" * 100_000 + "]" * 100_000
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("weft.json", f'{{"format": "weft", "version": 1, "tensors": [], "object": {deep}}}')
    refused(file.getvalue(), "its objects are nested too deeply")


def test_overlapping_members_are_refused():
    content = bytearray(crafted(members=[("data/0", b"ab"), ("data/1", b"ab")]))
    entry = content.rindex(b"data/1") - 46  # the central directory's entry of the last member
    struct.pack_into("<I", content, entry + 42, content.index(b"data/0") - 30)
    refused(bytes(content), "the member 'data/1' overlaps another one")


def test_a_location_maps_saved_devices():
    assert str(again(weft.ones(1), map_location={"cpu": "cpu"}).device) == "cpu"
    assert str(again(weft.ones(1), map_location=weft.device("cpu")).device) == "cpu"
