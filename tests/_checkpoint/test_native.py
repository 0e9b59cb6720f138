"""Files of the package's own format, which earlier versions wrote: they are read, and hostile ones are refused."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import nn
from weft.errors import CheckpointError

FILES = Path(__file__).parent / "files"


def refused(content, reason):
    with pytest.raises(CheckpointError, match=f"^cannot load <BytesIO>: {reason}"):
        weft.load(io.BytesIO(content))


def test_plain_objects_are_read():
    x = weft.load(FILES / "earlier_1.weft")
    array, tensor, parameter = x.pop("i"), x.pop("t"), x.pop("p")
    assert x == {
        "a": [1, 2.5, None, True],
        2: ("x", {3}, frozenset([5])),
        "b": b"\x00\xff",
        "c": 1 - 2j,
        "d": weft.bfloat16,
        "e": weft.device("cpu"),
        "f": weft.Size([2, 3]),
        "g": OrderedDict(z=1),
        "h": float("inf"),
        "j": np.float64(2.5),
    }
    assert (array.tolist(), tensor.tolist()) == ([0, 1, 2], [[0, 1, 2], [3, 4, 5]])
    assert isinstance(parameter, nn.Parameter)


def test_shared_elements_are_shared_and_names_are_there():
    x = weft.load(FILES / "earlier_2.weft")
    x["x"][2] = 9
    assert (x["part"].tolist(), x["turned"][2, 0].item()) == ([9, 3], 9)
    assert x["named"].names == ("N", "C")


def test_whole_objects_are_read_where_they_are_trusted():
    with pytest.raises(CheckpointError, match=r"GLOBAL \S+Sequential was not an allowed global by default"):
        weft.load(FILES / "earlier_3.weft")
    x = weft.load(FILES / "earlier_3.weft", weights_only=False)
    assert x["net"](weft.ones(1, 2)).shape == (1, 1)
    assert (x["args"], x["meta"].device.type, x["array"].tolist()) == (Namespace(lr=0.1), "meta", [1, 1])


# --- hostile files ---

TENSOR = {
    "kind": "Tensor",
    "dtype": "float32",
    "shape": [2],
    "device": "cpu",
    "requires_grad": False,
    "data": 0,
}


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
    (crafted(version=5), "its format is version 5, and this package reads up to 4; update the package"),
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
        crafted(AT_0, tensors=[{**TENSOR, "shape": [10**18]}]),
        "the member 'data/0' has 8 bytes, and a float32 tensor of shape",
    ),
    (crafted(AT_0, tensors=[{**TENSOR, "shape": [-2, -1]}]), r"it has a tensor of impossible shape \[-2, -1\]"),
    (
        crafted(AT_0, tensors=[{**TENSOR, "stride": [2], "offset": 0}]),
        r"it has a tensor of shape \[2\] with strides \[2\] that leads out of its storage",
    ),
    (crafted(AT_0, tensors=[{**TENSOR, "shape": [10**9], "stride": [0], "offset": 0}]), ".* leads out of its storage"),
    (crafted(AT_0, tensors=[{**TENSOR, "stride": [-1], "offset": 1}]), ".* impossible strides"),
    (crafted(AT_0, tensors=[{**TENSOR, "dtype": "object"}]), "it holds elements of unknown type 'object'"),
    (crafted(AT_0, tensors=[{**TENSOR, "kind": "Module"}]), "it has a tensor of unknown kind 'Module'"),
    (crafted(AT_0, tensors=[{**TENSOR, "data": 7}]), "the member 'data/7' is missing"),
    (crafted(AT_0, tensors=[{**TENSOR, "device": "tpu:99"}]), "tpu:99: this machine has no tpu device"),
    (
        crafted([AT_0, {"is": "tensor", "at": 1}], tensors=[TENSOR, {**TENSOR, "shape": [1, 2]}]),
        "it describes the member 'data/0' in two ways",
    ),
    (crafted(AT_0, tensors=[{**TENSOR, "dtype": "int32", "requires_grad": True}]), "only Tensors of floating point"),
]


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
    refused(bytes(content), "the member 'data/[01]' overlaps another one")
