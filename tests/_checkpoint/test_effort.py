"""What strangers wrote is read, or refused with a CheckpointError, in time that grows as its length does."""

from __future__ import annotations

import gc
import io
import itertools
import json
import pickle
import random
import struct
import sys
import time
import zipfile
from collections import Counter, OrderedDict
from functools import partial

import pytest

import weft
from tests._checkpoint.crafted import FILES, archive, named, number, text, tuple_of
from tests.mutating import damage
from weft._checkpoint.tensorfile import TensorFile
from weft._checkpoint.torch_files import _NameResolver
from weft.errors import CheckpointError

PRIME = 2**61 - 1  # numbers are their own hashes, modulo this one


def read(content):
    return _NameResolver(len(content)).load(io.BytesIO(content), "utf-8")


def described(obj, tensors=(), members=()):
    """One of the package's own files with any description."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        header = {"format": "weft", "version": 2, "tensors": list(tensors), "arrays": [], "object": obj}
        opened.writestr("weft.json", json.dumps(header))
        for name, content in members:
            opened.writestr(name, content)
    return file.getvalue()


def loaded(content):
    return weft.load(io.BytesIO(content))


# --- hashes that can be foreseen ---

COLLIDING = {
    "int": [k * PRIME for k in range(1, 18)],
    "negative": [-k * PRIME for k in range(1, 18)],
    "float": [2.0 ** (61 * k) for k in range(-8, 9)],
    "complex": [complex(2.0 ** (61 * k), 0.5) for k in range(-8, 9)],
    "tuple": [("a", k * PRIME) for k in range(1, 18)],
}


@pytest.mark.parametrize("name", COLLIDING)
@pytest.mark.parametrize("kind", [dict.fromkeys, OrderedDict.fromkeys, Counter, set, frozenset])
@pytest.mark.parametrize("protocol", [2, 4])
def test_keys_of_one_hash_are_refused(name, kind, protocol):
    keys = COLLIDING[name]
    assert len({hash(key) for key in keys}) == 1
    assert read(pickle.dumps(kind(keys[:16]), protocol)) == kind(keys[:16])
    with pytest.raises(CheckpointError, match=r"^it has more than 16 keys of one hash, which would take for ever"):
        read(pickle.dumps(kind(keys), protocol))


@pytest.mark.parametrize(
    "items",
    [
        {"is": "set", "items": [k * PRIME for k in range(1, 18)]},
        {"is": "frozenset", "items": [k * PRIME for k in range(1, 18)]},
        {"is": "dict", "items": [[k * PRIME, 0] for k in range(1, 18)]},
        {"is": "ordered", "items": [[{"is": "tuple", "items": [k * PRIME]}, 0] for k in range(1, 18)]},
    ],
)
def test_keys_of_one_hash_are_refused_in_the_packages_own_files(items):
    with pytest.raises(CheckpointError, match=r"^cannot load <BytesIO>: it has more than 16 keys of one hash"):
        loaded(described(items))


def test_keys_that_files_have_are_read():
    identities = {140_000_000_000_000 + 16 * k: k for k in range(3000)}  # as optimizers had them before PyTorch 1.6
    times = {1.7e9 + k / 7: k for k in range(3000)}
    pairs = {(k // 50, k % 50): k for k in range(3000)}
    assert read(pickle.dumps([identities, times, pairs, {2**127 + k for k in range(3000)}], 2)) == [
        identities,
        times,
        pairs,
        {2**127 + k for k in range(3000)},
    ]
    assert read(pickle.dumps([{0.5: k} for k in range(100)], 2)) == [{0.5: k} for k in range(100)]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (tuple_of(*[number(1)] * 65), "a key of 65 parts; 64 are allowed"),
        (named("torch", "Size") + tuple_of(*[number(1)] * 65) + b"\x85R", "a key of 65 parts; 64 are allowed"),
        (
            tuple_of(named("torch", "Size") + tuple_of(*[number(1)] * 65) + b"\x85R"),
            "a key of 65 parts; 64 are allowed",
        ),
        (text("x" * 65537), "a key of 65537 characters; 65536 are allowed"),
        (tuple_of(text("x" * 65537)), "a key of 65537 characters; 65536 are allowed"),
        (b"\x8b" + struct.pack("<I", 200) + b"\x01" * 200, "an integer of 1593 bits as a key; 1024 are allowed"),
    ],
)
def test_keys_that_could_come_again_and_again_are_short(key, reason):
    with pytest.raises(CheckpointError, match=f"^its pickle has {reason}$"):
        read(b"}" + key + b"Ns.")


# --- work that grows as files do ---


def calls_of(work):
    """How many calls a piece of work makes."""
    count = itertools.count()
    sys.setprofile(lambda *_: next(count))
    try:
        work()
    finally:
        sys.setprofile(None)
    return next(count)


def sharing(count):
    """A file in which pairs of tensors share members, none as a whole."""
    entry = {"kind": "Tensor", "dtype": "uint8", "shape": [1], "device": "cpu", "requires_grad": False, "stride": [1]}
    tensors = [entry | {"data": k, "offset": offset} for k in range(count) for offset in range(2)]
    listed = [{"is": "tensor", "at": k} for k in range(2 * count)]
    return described(listed, tensors, [(f"data/{k}", b"ab") for k in range(count)])


def test_many_shared_members_take_no_longer_each():
    loaded(sharing(2))
    few, many = (calls_of(partial(loaded, sharing(count))) for count in (20, 80))
    assert many < 5 * few


def header_of(entries):
    written = json.dumps(entries).encode()
    return io.BytesIO(len(written).to_bytes(8, "little") + written)


def test_a_long_header_is_read_without_looking_for_garbage():
    file = header_of({str(k): {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for k in range(20_000)})
    collections = []
    gc.callbacks.append(lambda phase, info: collections.append(info))
    try:
        found = TensorFile(file)
    finally:
        gc.callbacks.pop()
    assert len(found.keys()) == 20_000
    assert len(collections) <= 2  # one that was due before
    assert gc.isenabled()


def test_shapes_whose_product_takes_for_ever_are_refused():
    for shape in ([999_999_999] * 100_000, [10**4000]):
        with pytest.raises(ValueError, match=r"^its tensor 'a' has an impossible shape or place$"):
            TensorFile(header_of({"a": {"dtype": "U8", "shape": shape, "data_offsets": [0, 1]}}))
        entry = {"kind": "Tensor", "dtype": "uint8", "shape": shape, "device": "cpu", "requires_grad": False, "data": 0}
        with pytest.raises(CheckpointError, match=r"^cannot load <BytesIO>: it has a tensor of impossible shape \["):
            loaded(described({"is": "tensor", "at": 0}, [entry], [("data/0", b"a")]))


@pytest.mark.parametrize("content", [described([1]), archive(pickle.dumps([1], 2))], ids=["own", "torch"])
def test_members_before_the_file_are_refused(content, tmp_path):
    content = bytearray(content)
    end = content.rindex(b"PK\x05\x06")
    struct.pack_into("<I", content, end + 16, struct.unpack_from("<I", content, end + 16)[0] + 1)
    path = tmp_path / "file"
    path.write_bytes(content)
    for mmap in (False, True):
        with pytest.raises(CheckpointError, match=r"^cannot load .*file: the member '.*' lies before the file$"):
            weft.load(path, mmap=mmap)


# --- any damage ---


def own():
    return (FILES / "earlier_2.weft").read_bytes()


def own_description(damaged):
    with zipfile.ZipFile(io.BytesIO(own())) as opened:
        return opened.read("weft.json") if damaged is None else _with_description(opened, damaged)


def _with_description(opened, damaged):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as again:
        again.writestr("weft.json", damaged)
        for name in opened.namelist()[1:]:
            again.writestr(name, opened.read(name))
    return file.getvalue()


def torch_pickle(damaged):
    with zipfile.ZipFile(FILES / "training.pt") as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("data.pkl"))
        return opened.read(name) if damaged is None else archive(damaged, _0=bytes(8))


def plain_pickle(damaged):
    obj = {"a": [1, (2.5, "x")], "b": {3, 4}, "c": OrderedDict(d=b"e"), "f": 1j, 2**70: Counter("aab")}
    return pickle.dumps(obj, 4) if damaged is None else archive(damaged)


def safetensors_header(damaged):
    content = (FILES / "net.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    if damaged is None:
        return content[8 : 8 + length]
    return len(damaged).to_bytes(8, "little") + damaged + content[8 + length :]


def whole(content):
    return lambda damaged: content() if damaged is None else damaged


FORMATS = {  # what is damaged (for None), and the file around it
    "own": whole(own),
    "own description": own_description,
    "zip": whole((FILES / "training.pt").read_bytes),
    "zip pickle": torch_pickle,
    "plain pickle": plain_pickle,
    "legacy": whole((FILES / "training_legacy.pt").read_bytes),
    "safetensors": whole((FILES / "net.safetensors").read_bytes),
    "safetensors header": safetensors_header,
}


def fuzz(name, seed, path):
    draw = random.Random(f"{name} {seed}")
    content = FORMATS[name](damage(FORMATS[name](None), draw))
    path.write_bytes(content)
    start = time.process_time()
    try:
        weft.load(path, mmap=draw.random() < 0.2)
    except CheckpointError as error:
        assert str(error).startswith(f"cannot load {path}: ")  # noqa: PT017  most damage is noticed, not all
    used = time.process_time() - start
    assert used < 2 + 1e-4 * len(content), f"{used:.1f} s of processor time for {len(content)} bytes"


@pytest.mark.parametrize("name", FORMATS)
def test_some_damage(name, tmp_path):
    for seed in range(20):
        fuzz(name, seed, tmp_path / "file")


@pytest.mark.soak
@pytest.mark.parametrize("name", FORMATS)
def test_much_damage(name, tmp_path):
    for seed in range(3000):
        fuzz(name, seed, tmp_path / "file")
