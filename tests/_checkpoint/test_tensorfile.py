"""Safetensors files, against the package of that name."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests._checkpoint.crafted import FILES
from weft import nn, serialization
from weft.errors import CheckpointError

NAMES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
)


def of_all_types():
    tensors = {name: weft.tensor([[0, 1], [1, 3]]).to(getattr(weft, name)) for name in NAMES}
    return tensors | {
        "scalar": weft.tensor(2.5),
        "empty": weft.ones(0, 3),
        "transposed": weft.arange(6).reshape(2, 3).t(),
    }


def test_the_package_reads_what_is_written(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = of_all_types()
    serialization.save_file(tensors, path, metadata={"by": "weft", "ä": "ö"})
    with safetensors.safe_open(path, "np") as found:
        assert found.metadata() == {"by": "weft", "ä": "ö"}
        assert sorted(found.keys()) == sorted(tensors)
        for name in set(tensors) - {"bfloat16"}:
            array = found.get_tensor(name)
            assert (array.dtype, array.shape) == (tensors[name].dtype.numpy, tensors[name].shape)
            assert array.tolist() == tensors[name].tolist()


def test_what_the_package_writes_is_read(tmp_path):
    path = tmp_path / "x.safetensors"
    arrays = {name: np.array([[0, 1], [1, 3]]).astype(name) for name in NAMES if name != "bfloat16"}
    safetensors.numpy.save_file(arrays, path)
    for found in (weft.load(path), weft.load(path, mmap=True), serialization.load_file(path)):
        assert {name: (t.dtype.numpy, t.tolist()) for name, t in found.items()} == {
            name: (array.dtype, array.tolist()) for name, array in arrays.items()
        }


def test_all_types_come_back(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = of_all_types()
    weft.save(tensors, path)
    found = weft.load(path, map_location="cpu")
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert found[name].tolist() == tensor.tolist()
    assert weft.load(path, mmap=True)["bfloat16"].tolist() == tensors["bfloat16"].tolist()


def test_elements_are_aligned(tmp_path):
    path = tmp_path / "x.safetensors"
    weft.save(of_all_types(), path)
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert (8 + length) % 64 == 0
    for name, entry in header.items():
        assert entry["data_offsets"][0] % of_all_types()[name].itemsize == 0


def test_a_file_of_pytorchs_goes_into_a_module():
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net.load_state_dict(weft.load(FILES / "net.safetensors"))
    assert net.state_dict()["0.bias"].tolist() == weft.load(FILES / "training.pt")["net"]["0.bias"].tolist()


def test_tensors_are_read_one_by_one(tmp_path):
    path = tmp_path / "x.safetensors"
    serialization.save_file({"b": weft.ones(2), "a": weft.arange(3)}, path, {"k": "v"})
    with serialization.safe_open(path, framework="pt", device="cpu") as found:
        assert found.keys() == ["a", "b"]
        assert found.metadata() == {"k": "v"}
        assert found.get_shape("b") == [2]
        assert found.get_tensor("a").tolist() == [0, 1, 2]
        with pytest.raises(
            CheckpointError, match=f"^cannot load {path}: File does not contain tensor c; it has 2 others$"
        ):
            found.get_tensor("c")
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match=r"its tensors take 32 bytes, and it has 31$"):
        serialization.safe_open(path)
    with pytest.raises(FileNotFoundError):
        serialization.safe_open(tmp_path / "no")


UNSAVABLE = [
    ([1], "cannot save a list as safetensors: the format holds a dict of tensors by name"),
    (
        {"a": weft.Size([1])},
        "cannot save 'a', which is of type Size, as safetensors: the format holds tensors by name;",
    ),
    (
        {"epoch": 3},
        "cannot save 'epoch', which is of type int, as safetensors: the format holds tensors by name; put str",
    ),
    ({3: weft.Size([1])}, "cannot save the key 3 as safetensors: names of tensors are strings"),
    ({"__metadata__": 1}, "cannot save the key '__metadata__' as safetensors"),
]


@pytest.mark.parametrize(("obj", "message"), UNSAVABLE)
def test_what_is_no_tensor_is_named_and_nothing_is_written(obj, message, tmp_path):
    with pytest.raises(CheckpointError, match=f"^{message}"):
        weft.save(obj, tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_what_the_format_has_not_is_named(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(
        CheckpointError, match=r"^cannot save 'z' as safetensors: the format has no complex128; use complex6"
    ):
        weft.save({"z": weft.ones(1, dtype=weft.complex128)}, path)
    with pytest.raises(
        CheckpointError, match=r"^cannot save this metadata as safetensors: it must be a dict from strings "
    ):
        serialization.save_file({}, path, {"epoch": 3})
    assert list(tmp_path.iterdir()) == []


def file_of(header, content=bytes(8)):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


PLACE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
HOSTILE = [
    (file_of({"a": PLACE})[:-1], "its tensors take 8 bytes, and it has 7"),
    (file_of({"a": PLACE})[:20], "it is truncated: its header is not all there"),
    ((1 << 40).to_bytes(8, "little") + b"{}", "it is truncated: its header is not all there"),
    (file_of(b"{" * 100_000), "(Expecting property name|its objects are nested too deeply)"),
    (file_of(b'{"a":' * 100_000), "its objects are nested too deeply"),
    (file_of(b"{}  \xff"), "'utf-8' codec can't decode"),
    (file_of({"a": PLACE | {"dtype": "F8_E9M9"}}), "its tensor 'a' has elements of type 'F8_E9M9', which there is not"),
    (file_of({"a": PLACE | {"dtype": ["F32"]}}), ".*unhashable type"),
    (file_of({"a": PLACE | {"shape": [3]}}), r"its tensor 'a' of shape \[3\] takes 12 bytes, and has 8"),
    (file_of({"a": PLACE | {"shape": [-2]}}), "its tensor 'a' has an impossible shape or place"),
    (file_of({"a": PLACE | {"shape": [1 << 62, 1 << 62]}}), "its tensor 'a' of shape .* takes .* bytes, and has 8"),
    (file_of({"a": PLACE | {"data_offsets": [0, 8, 16]}}), "its tensor 'a' has an impossible shape or place"),
    (file_of({"a": PLACE | {"data_offsets": [8, 16]}}), "its tensor 'a' starts at 8, and the one before ends at 0"),
    (file_of({"a": PLACE, "b": PLACE}), "its tensor 'b' starts at 0, and the one before ends at 8"),
    (file_of({"a": {}}), "its tensor 'a' is described without 'dtype', 'shape' and 'data_offsets'"),
    (file_of({"a": 3}), "its tensor 'a' is described without 'dtype', 'shape' and 'data_offsets'"),
    (file_of({"a": {"shape": [1]}}), "'dtype'"),
    (file_of({"a": PLACE | {"shape": [1] * 65}}), "its tensor 'a' has an impossible shape or place"),
    (file_of({"__metadata__": {"a": 1}}), "its metadata is no dict of strings"),
    (
        file_of(b'{"a":' + json.dumps(PLACE).encode() + b',"a":' + json.dumps(PLACE).encode() + b"}"),
        "its header names som",
    ),
]


@pytest.mark.parametrize(("content", "reason"), HOSTILE)
def test_hostile_files_are_refused(content, reason):
    with pytest.raises(CheckpointError, match=f"^cannot load <BytesIO>: {reason}"):
        weft.load(io.BytesIO(content))


@given(st.dictionaries(st.text(max_size=3), st.lists(st.integers(0, 3), max_size=3), max_size=4))
def test_any_names_and_shapes_come_back(shapes):
    file = io.BytesIO()
    serialization.writer_of({name: weft.ones(shape) for name, shape in shapes.items() if name != "__metadata__"}, None)(
        file
    )
    assert set(safetensors.numpy.load(file.getvalue())) == set(shapes) - {"__metadata__"}
    file.seek(0)
    found = weft.load(file)
    assert {name: list(tensor.shape) for name, tensor in found.items()} == shapes
