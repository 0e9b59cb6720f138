"""Options of loading, storages by themselves, and classes of tensors with slots and states of their own."""

from __future__ import annotations

import copy
import io
import mmap
import sys
import zipfile

import numpy as np
import pytest

import weft
from weft import serialization


class Slotted(weft.Tensor):
    """A class with slots, which Python cannot give to an object of another class."""

    __slots__ = ("elem", "other")


class Stateful(weft.Tensor):
    """A class that says itself what is saved of it."""

    def __getstate__(self):
        return "mark", self.note

    def __setstate__(self, state):
        assert state[0] == "mark"
        self.note, self.loaded = state[1], True


def saved(obj, **options):
    file = io.BytesIO()
    weft.save(obj, file, **options)
    file.seek(0)
    return file


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("zipped", [True, False])
def test_storages_by_themselves_are_shared_with_tensors(weights_only, zipped):
    x = weft.arange(6.0)
    obj = [x, x.storage(), (x[2:4].storage(),), {"of two": weft.FloatStorage([1, 2])}]
    file = saved(obj, _use_new_zipfile_serialization=zipped)
    y, storage, others, named = weft.load(file, weights_only=weights_only)
    assert type(storage) is weft.storage.TypedStorage
    y.fill_(7)
    assert storage.tolist() == [7] * 6
    assert all(other.data_ptr() == y.data_ptr() for other in others)
    assert named["of two"].tolist() == [1, 2]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_empty_storages_may_be_saved_as_several_types():
    empty = weft.tensor([], dtype=weft.int32)
    other = weft.TypedStorage(wrap_storage=empty.untyped_storage(), dtype=weft.float64)
    x, storage = weft.load(saved([empty, other]))
    assert (x.dtype, storage.dtype, len(storage)) == (weft.int32, weft.float64, 0)


def test_a_class_with_slots():
    x = weft.ones(2).as_subclass(Slotted)
    x.elem, x.note = weft.zeros(3), "note"
    with serialization.safe_globals([Slotted]):
        loaded = [weft.load(saved(x)), weft.load(saved(x), weights_only=False)]
    for y in (*loaded, copy.deepcopy(x), copy.copy(x)):
        assert type(y) is Slotted
        assert (y.tolist(), y.elem.tolist(), y.note, hasattr(y, "other")) == ([1, 1], [0, 0, 0], "note", False)
    assert type(Slotted([1.0])) is Slotted


def test_a_class_with_a_state_of_its_own():
    x = weft.ones(2).as_subclass(Stateful)
    x.note = weft.zeros(1)
    y = weft.load(saved(x), weights_only=False)
    assert (type(y), y.tolist(), y.note.tolist(), y.loaded) == (Stateful, [1, 1], [0], True)


def without_byte_order(x, swapped):
    file = io.BytesIO()
    weft.save(x, file)
    old, new = zipfile.ZipFile(io.BytesIO(file.getvalue())), io.BytesIO()
    with zipfile.ZipFile(new, "w") as target:
        for name in old.namelist():
            content = old.read(name)
            if "/data/" in name and swapped:
                content = np.frombuffer(content, f"u{x.element_size()}").byteswap().tobytes()
            if not name.endswith("/byteorder"):
                target.writestr(name, content)
    new.seek(0)
    return new


@pytest.mark.parametrize("dtype", ["int16", "float32", "bfloat16", "float64", "uint8"])
def test_the_byte_order_of_files_that_do_not_say_it(dtype):
    x = weft.arange(6).to(getattr(weft, dtype))
    order = serialization.LoadEndianness
    for endianness, swapped in ((None, False), (order.NATIVE, False), (order.LITTLE, False), (order.BIG, True)):
        serialization.set_default_load_endianness(endianness)
        try:
            assert weft.load(without_byte_order(x, swapped)).tolist() == list(range(6))
        finally:
            serialization.set_default_load_endianness(None)
    assert sys.byteorder == "little"
    with pytest.raises(TypeError, match="Invalid argument type in function set_default_load_endianness"):
        serialization.set_default_load_endianness("big")


def test_files_that_are_mapped_as_shared_are_written_to(tmp_path):
    path = tmp_path / "x.pt"
    weft.save({"w": weft.zeros(3)}, path)
    weft.load(path, mmap=True)["w"][0] = 5
    assert weft.load(path)["w"].tolist() == [0, 0, 0]
    with serialization.set_default_mmap_options(mmap.MAP_SHARED):
        assert serialization.get_default_mmap_options() == mmap.MAP_SHARED
        weft.load(path, mmap=True)["w"][0] = 5
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    assert weft.load(path, mmap=True)["w"].tolist() == [5, 0, 0]
    with pytest.raises(ValueError, match=r"expected mmap\.MAP_PRIVATE or mmap\.MAP_SHARED, but got 77"):
        serialization.set_default_mmap_options(77)


def test_old_files_are_not_mapped(tmp_path):
    weft.save(weft.ones(2), tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used with files saved with"):
        weft.load(tmp_path / "x.pt", mmap=True)


def test_strings_of_python_2_may_stay_bytes():
    old = (
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}U\rlittle_endian\x88s."
        b"\x80\x02](U\x02\xc5\xbcctorch._utils\n_rebuild_tensor_v2\n((U\x07storagectorch\nFloatStorage\nU\x011U\x03cpu"
        b"K\x01NtQK\x00K\x01\x85K\x01\x85\x89NtRe.\x80\x02]U\x011a.\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80?"
    )
    for encoding, text in (("utf-8", "ż"), ("bytes", b"\xc5\xbc")):
        for weights_only in (True, False):
            word, x = weft.load(io.BytesIO(old), encoding=encoding, weights_only=weights_only)
            assert (word, x.tolist()) == (text, [1])


@pytest.mark.parametrize("weights_only", [True, False])
def test_untyped_storages_by_themselves(weights_only):
    storage = weft.arange(3, dtype=weft.uint8).untyped_storage()
    first, again = weft.load(saved([storage, storage]), weights_only=weights_only)
    assert type(first) is weft.UntypedStorage
    assert first.tolist() == [0, 1, 2]
    first[0] = 9
    assert again[0] == 9
