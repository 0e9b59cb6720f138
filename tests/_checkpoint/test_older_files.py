"""Files in forms that PyTorch no longer writes, and what is read from them as it was there."""

import importlib
import io
import pickle
import struct
import sys
import tarfile
import warnings
from pathlib import Path

import pytest

import weft
from tests._checkpoint.crafted import called, named, number, text, tuple_of
from weft import nn, serialization

FILES = Path(__file__).parent / "files"


def older(obj):
    file = io.BytesIO()
    weft.save(obj, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    return file


# --- parts of storages, as PyTorch 0.3 has written them ------------------------------------------------------------


def stream(content, keys, elements):
    head = (serialization.torch_files.LEGACY_START, pickle.dumps(1001, 2), pickle.dumps({"little_endian": True}, 2))
    return b"".join((*head, b"\x80\x02", content, b".", pickle.dumps(keys, 2), elements))


def part(key, start, length):
    view = tuple_of(text(key), number(start), number(length))
    pid = tuple_of(text("storage"), named("torch", "FloatStorage"), text("7"), text("cpu"), number(4), view)
    return pid + b"Q"


def tensor_on(storage, offset, length):
    arguments = (storage, number(offset), tuple_of(number(length)), tuple_of(number(1)))
    return called(named("torch._utils", "_rebuild_tensor"), *arguments)


ELEMENTS = struct.pack("<q4f", 4, *range(4))


@pytest.mark.parametrize("weights_only", [True, False])
def test_parts_of_storages(weights_only):
    parts = part("8", 1, 3), part("9", 0, 2)
    content = tuple_of(*parts, tensor_on(parts[0], 1, 2), tensor_on(parts[1], 0, 2))
    found = weft.load(io.BytesIO(stream(content, ["7"], ELEMENTS)), weights_only=weights_only)
    assert [x.tolist() for x in found] == [[1, 2, 3], [0, 1], [2, 3], [0, 1]]
    assert isinstance(found[0], weft.storage.TypedStorage)
    assert found[2].untyped_storage().data_ptr() == found[3].untyped_storage().data_ptr()


@pytest.mark.parametrize(("start", "length"), [(3, 2), (0, 5)])
def test_parts_that_lead_out_of_a_storage_are_refused(start, length):
    with pytest.raises(pickle.UnpicklingError, match=f"{length} elements from {start} of a storage of 4"):
        weft.load(io.BytesIO(stream(part("8", start, length), ["7"], ELEMENTS)))


def test_tensors_beyond_their_part_are_refused():
    with pytest.raises(pickle.UnpicklingError, match="needs 3 elements of a storage of 2"):
        weft.load(io.BytesIO(stream(tensor_on(part("8", 0, 2), 1, 2), ["7"], ELEMENTS)))


def test_the_oldest_tensors_have_a_state():
    class Old:
        def __init__(self, x):
            self.state = (x.storage(), x.storage_offset(), tuple(x.shape), x.stride())

        def __reduce__(self):
            return weft.Tensor, (), self.state

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        obj = Old(weft.arange(30.0).as_strided((2, 3), (9, 3), 2))
    assert weft.load(older(obj)).tolist() == [[2, 5, 8], [11, 14, 17]]


# --- tar archives, as PyTorch's first versions have written them ---------------------------------------------------


class Numbered(pickle.Pickler):
    def persistent_id(self, obj):
        return obj[1] if isinstance(obj, tuple) else None


def described(key, of, module, kind):
    return b"\x80\x02" + tuple_of(number(key), of, named(module, kind)) + b"."


def tar():
    storages = pickle.dumps(1, 2) + described(11, text("cpu"), "torch", "FloatStorage")
    storages += struct.pack("<q6f", 6, *range(6)) + pickle.dumps([(13, 11, 2, 3)], 2)
    tensors = pickle.dumps(1, 2) + described(21, number(11), "torch", "FloatTensor")
    tensors += struct.pack("<6q", 2, 2, 2, 1, 2, 1)
    content = io.BytesIO()
    Numbered(content, 2).dump({"x": ("at", 21), "storage": ("at", 11), "part": ("at", 13), "n": 3})
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for name, member in {"storages": storages, "tensors": tensors, "pickle": content.getvalue()}.items():
            info = tarfile.TarInfo(name)
            info.size = len(member)
            archive.addfile(info, io.BytesIO(member))
    file.seek(0)
    return file


def test_tar_archives_are_read_if_they_are_trusted():
    found = weft.load(tar(), weights_only=False)
    assert (found["x"].tolist(), found["x"].stride(), found["n"]) == ([[1, 3], [2, 4]], (1, 2), 3)
    assert found["part"].tolist() == [2, 3, 4]
    found["x"].zero_()
    assert found["storage"].tolist() == [0, 0, 0, 0, 0, 5]
    with pytest.raises(RuntimeError, match=r"Cannot use ``weights_only=True`` with files saved in the legacy \.tar"):
        weft.load(tar())


# --- the source of modules -----------------------------------------------------------------------------------------

SOURCE = "from weft import nn\n\nclass Net(nn.Module):\n    pass\n"


def test_a_changed_source_of_a_module_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "net_of_test.py"
    path.write_text(SOURCE)
    module = importlib.import_module("net_of_test")
    file = older(nn.Sequential(module.Net(), nn.Linear(1, 1)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert isinstance(weft.load(file, weights_only=False)[0], module.Net)
        path.write_text(f"{SOURCE}    size = 1\n")
        importlib.invalidate_caches()
        importlib.reload(module)
        file.seek(0)
        with pytest.warns(
            serialization.SourceChangeWarning, match=r"source code of class 'net_of_test.Net' has changed"
        ):
            weft.load(file, weights_only=False)
        monkeypatch.setattr(nn.Module, "dump_patches", True, raising=False)
        file.seek(0)
        with pytest.warns(serialization.SourceChangeWarning, match="Saved a reverse patch to Net.patch"):
            weft.load(file, weights_only=False)
        assert "-    size = 1" in Path("Net.patch").read_text()
    finally:
        del sys.modules["net_of_test"]


# --- half-precision complex numbers, and subclasses without elements -----------------------------------------------


def test_pairs_of_half_precision_numbers_become_complex64():
    x = weft.load(FILES / "complex32.pt")["x"]
    assert (x.dtype, x.tolist()) == (weft.complex64, [0])


class Pair(weft.Tensor):
    """Holds two tensors, and has no elements of its own."""

    @staticmethod
    def __new__(cls, a, b):
        return weft.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype, requires_grad=a.requires_grad)

    def __init__(self, a, b):
        self.a, self.b = a, b

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        parts = [[getattr(x, name) if isinstance(x, cls) else x for x in args] for name in "ab"]
        return cls(*[func(*part, **(kwargs or {})) for part in parts])


@pytest.mark.parametrize("in_archive", [True, False])
def test_subclasses_without_elements(in_archive):
    pair = Pair(weft.ones(2), weft.zeros(2))
    pair.note = "n"
    file = io.BytesIO()
    weft.save({"x": pair, "p": nn.Parameter(pair)}, file, _use_new_zipfile_serialization=in_archive)
    file.seek(0)
    with pytest.raises(
        pickle.UnpicklingError, match=rf"use `torch.serialization.add_safe_globals\(\[{__name__}.Pair\]\)`"
    ):
        weft.load(file)
    file.seek(0)
    with serialization.safe_globals([Pair]):
        found = weft.load(file)
    assert (type(found["x"]), found["x"].note, found["x"].a.tolist()) == (Pair, "n", [1, 1])
    assert isinstance(found["p"], nn.Parameter)
    assert found["p"].b.tolist() == [0, 0]
    assert found["x"].device == weft.device("cpu")


# --- what a program trusts -----------------------------------------------------------------------------------------


class Outer:
    class Inner:
        pass


def test_trusted_functions_may_give_trusted_classes():
    file = io.BytesIO()
    weft.save(Outer.Inner(), file)
    for trusted, reason in (([Outer], "GLOBAL getattr was not"), ([Outer, getattr], "nothing to call")):
        file.seek(0)
        with serialization.safe_globals(trusted), pytest.raises(pickle.UnpicklingError, match=reason):
            weft.load(file)
    file.seek(0)
    with serialization.safe_globals([Outer, getattr, Outer.Inner]):
        assert type(weft.load(file)) is Outer.Inner


class Counted:
    made = 0

    def __setstate__(self, state):
        Counted.made += 1


def test_trusted_code_runs_once():
    obj = Counted()
    obj.x = weft.ones(2)
    with serialization.safe_globals([Counted]):
        weft.load(older(obj))
    assert Counted.made == 1
