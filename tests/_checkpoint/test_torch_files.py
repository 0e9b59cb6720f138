"""Files of PyTorch's. Those under `files` were written by torch 2.13 (`record.py`); the hostile ones by hand."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tracemalloc
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests._checkpoint.crafted import END, FILES, archive, called, named, number, rebuilt, stored, text, tuple_of
from weft import nn, serialization
from weft.errors import CheckpointError, PickleError

TRAINING = (FILES / "training.pt").read_bytes()
LEGACY = (FILES / "training_legacy.pt").read_bytes()
SAFE = (FILES / "net.safetensors").read_bytes()
PAIR = struct.pack("<2f", 1, 2)


def plain(x):
    """With lists in place of tensors and tuples, and strings for keys, as in JSON."""
    if isinstance(x, dict):
        return {str(key): plain(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(item) for item in x]
    return x.tolist() if isinstance(x, weft.Tensor) else x


def loaded(content, **options):
    return weft.load(io.BytesIO(content), **options)


def refused(content, reason, kind=PickleError):
    with pytest.raises(kind, match=f"^cannot load <BytesIO>: {reason}"):
        loaded(content)


@pytest.mark.parametrize("name", ["training.pt", "training_legacy.pt"])
def test_a_checkpoint_has_the_recorded_values(name):
    found = weft.load(FILES / name)
    assert plain(found) == json.loads((FILES / "training.json").read_text())
    assert type(found["net"]) is OrderedDict
    assert found["net"]._metadata["1"] == {"version": 2}
    assert found["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)


def test_training_goes_on_from_a_checkpoint_of_pytorchs():
    found = weft.load(FILES / "training.pt")
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = weft.optim.AdamW(net.parameters())
    net.load_state_dict(found["net"])
    optimizer.load_state_dict(found["optimizer"])
    net(weft.ones(3, 2)).sum().backward()
    optimizer.step()
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert int(optimizer.state[net[0].weight]["step"]) == 2
    assert int(net[1].num_batches_tracked) == 2


def test_what_was_loaded_can_be_saved():
    file = io.BytesIO()
    weft.save(weft.load(FILES / "training.pt"), file)
    again = loaded(file.getvalue())
    assert plain(again) == json.loads((FILES / "training.json").read_text())
    assert again["net"]._metadata["1"] == {"version": 2}


def test_mapped_files_have_the_same_values():
    found = weft.load(FILES / "training.pt", mmap=True)
    assert plain(found) == json.loads((FILES / "training.json").read_text())
    found["net"]["0.weight"].zero_()
    assert plain(weft.load(FILES / "training.pt")) == json.loads((FILES / "training.json").read_text())
    with pytest.raises(ValueError, match=r"^f must be a file path in order to use the mmap argument$"):
        weft.load(io.BytesIO(TRAINING), mmap=True)


@pytest.fixture(scope="module", params=["kinds.pt", "kinds_protocol_5.pt"])
def kinds(request):
    return weft.load(FILES / request.param)


def test_element_types(kinds):
    for name, tensor in kinds["types"].items():
        assert tensor.dtype is getattr(weft, name)
        assert tensor.tolist() == [0, 1, 1]


def test_kinds_of_tensors(kinds):
    assert type(kinds["parameter"]) is nn.Parameter
    assert not kinds["parameter"].requires_grad
    assert type(kinds["buffer"]) is nn.Buffer
    assert not kinds["buffer"].persistent
    assert kinds["marked"].tag == "mine"
    assert kinds["twice"] == [kinds["marked"], kinds["marked"]]
    assert kinds["leaf"].requires_grad
    assert kinds["leaf"].is_leaf


def test_views(kinds):
    assert kinds["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert kinds["transposed"].stride() == (1, 3)
    assert kinds["transposed"].is_set_to(kinds["again"])
    assert kinds["base"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert kinds["slice"].tolist() == [2, 4, 6]
    assert kinds["expanded"].tolist() == [1, 1, 1]
    assert kinds["empty"].shape == (0, 3)
    assert (kinds["scalar"].shape, kinds["scalar"].item()) == ((), 3)
    assert (kinds["conj"].tolist(), kinds["neg"].tolist()) == ([1 - 2j], [-2])


def test_plain_objects(kinds):
    plain = [None, True, 1, 2**80, -1.5, "ä", b"\xff\x00", bytearray(b"12"), 1 - 2j, {1, 2}, frozenset([3]), (4, ())]
    assert kinds["plain"] == plain
    assert list(map(type, kinds["plain"])) == list(map(type, plain))
    assert kinds["named"] == [weft.float16, weft.device("cuda", 1), weft.Size([1, 2]), Counter("aab")]
    assert list(map(type, kinds["named"][2:])) == [weft.Size, Counter]


def test_numpy_objects(kinds):
    *numbers, matrix, row = kinds["numpy"]
    assert numbers == [2.5, -3, True]
    assert list(map(type, numbers)) == [np.float64, np.int32, np.bool_]
    assert matrix.tolist() == [[0, 3], [1, 4], [2, 5]]
    row += 1
    assert row.tolist() == [1, 2, 3]


def test_sparse_and_nested_tensors():
    loaded = weft.load(FILES / "layouts.pt")
    dense = weft.tensor([[0.0, 0, 3], [4, 0, 5]])
    assert loaded["coo"]._indices().tolist() == [[1, 0, 1]]
    assert loaded["coo"].to_dense().tolist() == [[3, 4], [6, 8]]
    assert loaded["coalesced"].is_coalesced()
    for name in ("csr", "csc", "bsr"):
        assert loaded[name].layout is getattr(weft, f"sparse_{name}")
        assert weft.equal(loaded[name].to_dense().float(), dense)
    assert [x.tolist() for x in loaded["nested"]] == [[[1], [1]], [[0, 0, 0]]]


def test_quantized_tensors():
    loaded = weft.load(FILES / "quantized.pt")
    assert loaded["tensor"].int_repr().tolist() == [[15, 30], [0, 10]]
    assert (loaded["tensor"].q_scale(), loaded["tensor"].q_zero_point()) == (0.1, 10)
    assert loaded["channels"].int_repr().tolist() == [[6, -9], [10, 0]]
    assert loaded["channels"].q_per_channel_zero_points().tolist() == [1, 0]
    layer = weft.ao.nn.quantized.Linear(2, 2)
    layer.load_state_dict(loaded["layer"])
    assert layer.weight().int_repr().tolist() == [[5, -10], [10, 0]]


REFUSED = {
    "class": (PickleError, "it holds collections.Counter by itself; classes and functions are not loaded"),
    "module": (
        PickleError,
        "Weights only load failed. Unsupported global: GLOBAL torch.nn.modules.linear.Identity was not an allowed "
        r"global by default. .* `torch.serialization.add_safe_globals\(\[torch.nn.modules.linear.Identity\]\)` .* "
        "load it with `weights_only=False`.",
    ),
    "strings": (PickleError, "its pickle holds NumPy elements of type 'U1'; numbers can be loaded"),
    "script": (CheckpointError, "it is a TorchScript archive, which holds code; load it there with torch.jit.load"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_loaded_is_named(name):
    kind, reason = REFUSED[name]
    refused((FILES / f"refused_{name}.pt").read_bytes(), reason, kind)


def test_tensors_on_the_meta_device_stay_there():
    found = weft.load(FILES / "meta.pt", map_location="cpu")["x"]
    assert (found.device.type, found.shape, found.dtype) == ("meta", (1,), weft.float32)


# --- where tensors go ---


def test_map_location_in_all_its_forms():
    content = archive(rebuilt(stored(location="cuda:3"), 0, (2,), (1,)) + END, _0=PAIR)
    seen = []

    def keep(storage, location):
        seen.append((location, storage.nbytes(), storage.device))
        return storage

    for where in ("cpu", weft.device("cpu"), {"cuda:3": "cpu"}, keep, lambda storage, _: storage.to("cpu").cpu()):
        assert loaded(content, map_location=where).tolist() == [1, 2]
    assert seen == [("cuda:3", 8, weft.device("cpu"))]
    for where in (None, {"cuda:4": "cpu"}, lambda *_: None, lambda storage, _: storage.cuda(3)):
        with pytest.raises(
            RuntimeError,
            match=r"^cannot load <BytesIO>: Attempting to deserialize object on a CUDA device but .*cuda:3",
        ):
            loaded(content, map_location=where)
    for where in (1.5, 0):
        with pytest.raises(TypeError, match=r"^'(float|int)' object is not callable: load\(\): map_location must be a"):
            loaded(content, map_location=where)
    with pytest.raises(
        CheckpointError, match=r"^cannot load <BytesIO>: a map_location function returns the storage that"
    ):
        loaded(content, map_location=lambda storage, _: "cpu")
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        loaded(content, map_location=lambda storage: storage)
    assert len(loaded(content, map_location=lambda storage, _: None if len(storage) != 8 else storage)) == 2


def test_files_that_cannot_be_read_at_any_place_are_refused(tmp_path):
    path = tmp_path / "x.pt"
    with open(path, "wb") as file, pytest.raises(io.UnsupportedOperation, match="seekable and open for reading"):
        weft.load(file)


def test_other_byte_orders():
    pickled = rebuilt(stored(), 0, (2,), (1,)) + END
    assert loaded(archive(pickled, byteorder=b"big", _0=struct.pack(">2f", 1, 2))).tolist() == [1, 2]
    assert loaded(archive(pickled, byteorder=b"little", _0=PAIR)).tolist() == [1, 2]
    refused(
        archive(pickled, byteorder=b"middle", _0=PAIR), "its byte order is b'middle', which is none", CheckpointError
    )


def test_strings_of_python_2():
    content = archive(b"U\x01\xe4" + END)
    assert loaded(content, encoding="latin-1") == "ä"
    assert loaded(content, encoding="bytes") == b"\xe4"
    refused(content, r"its pickle is damaged \(UnicodeDecodeError")


# --- code ---


class Exploit:
    def __init__(self, function, *args):
        self._reduced = function, args

    def __reduce__(self):
        return self._reduced


@pytest.mark.parametrize("protocol", range(6))
def test_no_code_is_run(protocol, tmp_path):
    mark = tmp_path / "mark"
    for function, shown in ((exec, "exec"), (eval, "eval"), (open, f"{open.__module__}.open"), (getattr, "getattr")):
        content = archive(pickle.dumps([Exploit(function, f"open({str(mark)!r}, 'w')", "w")], protocol))
        for options in ({}, {"weights_only": True}):
            with pytest.raises(pickle.UnpicklingError, match=f"Unsupported global: GLOBAL {shown} was not an allowed"):
                loaded(content, **options)
    assert not mark.exists()
    refused(
        archive(named("os", "system") + END), "Trying to load unsupported GLOBAL os.system whose module os is blocke"
    )


@pytest.fixture
def trusted():
    """What the process trusts, which is the same again after the test."""
    with serialization.safe_globals([]):
        yield serialization.get_safe_globals()


def test_what_the_program_trusts_is_loaded(trusted):
    content = archive(pickle.dumps({"args": Namespace(lr=0.1), "at": Fraction(1, 3)}, 2))
    names = ["argparse.Namespace", "fractions.Fraction"]
    assert serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content)) == names
    refused(content, "Weights only load failed. Unsupported global: GLOBAL argparse.Namespace")
    with serialization.safe_globals([Namespace, (Fraction, "fractions.Fraction")]):
        assert serialization.get_safe_globals() == [
            *trusted,
            Namespace,
            Fraction,
        ]  # distributed.tensor adds its own, as in PyTorch
        assert loaded(content) == {"args": Namespace(lr=0.1), "at": Fraction(1, 3)}
        assert serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content)) == []
    refused(content, "Weights only load failed. Unsupported global: GLOBAL argparse.Namespace")
    serialization.add_safe_globals([Namespace, Fraction])
    assert loaded(content)["args"].lr == 0.1
    serialization.clear_safe_globals()
    assert serialization.get_safe_globals() == []
    with pytest.raises(ValueError, match=r"^Expected tuple of length 2 \(global, str of callable full path\), but got"):
        serialization.add_safe_globals([(Fraction,)])
    with pytest.raises(TypeError, match=r"^Expected second item in tuple to be str of callable full path, but got: <"):
        serialization.safe_globals([(Fraction, 1)]).__enter__()
    with serialization.safe_globals([5]):  # which no file can name
        assert serialization.get_safe_globals() == [5]
    assert serialization.get_safe_globals() == []
    with pytest.raises(TypeError, match=r"^'int' object is not iterable$"), serialization.safe_globals(5):
        pass


class Slotted:
    __slots__ = ("kind",)


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("protocol", [2, 4])
def test_trusted_classes_are_loaded_themselves(protocol):
    slotted = Slotted()
    slotted.kind = Fraction
    content = archive(pickle.dumps([slotted, Fraction, defaultdict(list, a=[1]), range(3)], protocol))
    refused(
        content, f"Weights only load failed. Unsupported global: GLOBAL {__name__}.Slotted was not an allowed global"
    )
    with serialization.safe_globals([Slotted, Fraction, defaultdict, list, range]):
        found, *others = loaded(content)
    assert (type(found), found.kind) == (Slotted, Fraction)
    assert others == [Fraction, {"a": [1]}, range(3)]
    assert others[1].default_factory is list


@pytest.mark.parametrize("protocol", [2, 5])
def test_globals_are_listed_without_loading(protocol):
    content = archive(
        pickle.dumps([Exploit(eval, "1"), Exploit(eval, "2"), Exploit(print), OrderedDict(), {1}], protocol)
    )
    assert serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(content)) == ["builtins.eval", "builtins.print"]
    file = io.BytesIO()
    weft.save(1, file)
    assert serialization.get_unsafe_globals_in_checkpoint(file) == []


# --- hostile files ---

TENSOR = rebuilt(stored(), 0, (2,), (1,))
BOMB = b"]q\x00" + b"0]q\x01(h\x00h\x00e0h\x01q\x00" * 60  # lists that hold another one twice: never print them
ORDERED = called(named("collections", "OrderedDict"))
FLOAT32 = called(named("numpy", "dtype"), text("f4"), b"\x89", b"\x88")
HOSTILE = {
    "size out of storage": (rebuilt(stored(), 0, (3,), (1,)), r".* of size \[3\] that needs 3 elements of a storage o"),
    "offset out of storage": (rebuilt(stored(), 1, (2,), (1,)), r".* that needs 3 elements of a storage of 2"),
    "stride out of storage": (rebuilt(stored(), 0, (2, 2), (1, 1 << 40)), r".* elements of a storage of 2"),
    "negative size": (rebuilt(stored(), 0, (-1,), (1,)), r"its pickle makes a tensor of size \[-1\], which there is n"),
    "negative stride": (rebuilt(stored(), 1, (2,), (-1,)), ".*which there is not"),
    "huge size": (rebuilt(stored(), 0, (1 << 70,), (0,)), ".*which there is not"),
    "expanded": (rebuilt(stored(), 0, (1 << 20, 1 << 20), (0, 0)), "its tensors are views that take far more memory"),
    "many dims": (rebuilt(stored(), 0, (1,) * 65, (1,) * 65), "its pickle makes a tensor whose sizes and strides disa"),
    "no stride": (rebuilt(stored(), 0, (2,), ()), "its pickle makes a tensor whose sizes and strides disagree"),
    "storage size": (rebuilt(stored(count=3), 0, (2,), (1,)), r"the member 'x/data/0' has 8 bytes instead of 12"),
    "two sizes": (tuple_of(stored(), stored(count=3)), "its pickle describes the storage '0' in two ways"),
    "negative storage": (stored(count=-2), "its pickle refers to a part of a storage, or to -2 elements"),
    "no such storage": (rebuilt(stored("../../0"), 0, (2,), (1,)), "the member 'x/data/../../0' is missing"),
    "persistent id": (text("storage") + b"Q", "its pickle refers to something outside of it that is no storage: 'stor"),
    "persistent tuple": (tuple_of(number(1), *[b"N"] * 4) + b"Q", ".* that is no storage: a tuple"),
    "storage type": (tuple_of(text("storage"), b"N", *[text("0")] * 2, number(1)) + b"Q", ".*that makes no sense"),
    "no storage": (called(named("torch._utils", "_rebuild_tensor_v2"), *[b"N"] * 6), ".* something else than a storag"),
    "call of a bomb": (called(BOMB), "its pickle calls a list, which is nothing to call"),
    "new bomb": (BOMB + b")\x81", "its pickle calls a list, which is nothing to call"),
    "size of bombs": (
        called(named("torch._utils", "_rebuild_tensor"), stored(), number(0), tuple_of(BOMB), tuple_of(number(1))),
        r"its pickle makes a tensor of size \[a list\], which there is not",
    ),
    "layout of bombs": (
        called(named("torch.serialization", "_get_layout"), BOMB),
        "it names a layout that there is not: a list",
    ),
    "type of bombs": (called(named("numpy", "dtype"), BOMB), "its pickle holds NumPy elements of type a list"),
    "few arguments": (called(named("torch._utils", "_rebuild_tensor_v2")), r"its pickle is damaged \(TypeError"),
    "call of a string": (text("eval") + tuple_of() + b"R", "its pickle calls 'eval', which is nothing to call"),
    "call of a type": (called(named("torch", "float32")), "its pickle calls torch.float32, which is nothing to call"),
    "call of a tensor": (called(named("torch", "Tensor")), "its pickle calls torch.Tensor, which is nothing to call"),
    "no arguments": (named("builtins", "set") + b"]R", "its pickle calls builtins.set with a list instead of argument"),
    "new storage": (named("torch", "FloatStorage") + b")\x81", "its pickle calls torch.FloatStorage, which is nothing"),
    "state of a list": (b"]}b", "its pickle sets the state of a list, which has none to set"),
    "state of a tensor": (TENSOR + b"}b", "its pickle sets the state of a Tensor, which has none to set"),
    "state that hides": (
        ORDERED + b"}" + text("keys") + b"Nsb",
        "its pickle gives an OrderedDict attributes that it must not have",
    ),
    "attribute that hides": (
        called(
            named("torch._tensor", "_rebuild_from_type_v2"),
            named("torch._utils", "_rebuild_parameter"),
            named("torch", "Tensor"),
            tuple_of(TENSOR, b"\x89", b"N"),
            b"}" + text("_value") + b"Ns",
        ),
        "its pickle gives a tensor the attribute '_value', which it must not have",
    ),
    "rebuilt by anything": (
        called(named("torch._tensor", "_rebuild_from_type_v2"), text("eval"), named("torch", "Tensor"), b")", b"}"),
        "its pickle makes a tensor by something else than a function for that",
    ),
    "rebuilt by a set": (
        called(
            named("torch._tensor", "_rebuild_from_type_v2"),
            named("builtins", "set"),
            named("torch", "Tensor"),
            b")",
            b"}",
        ),
        "its pickle makes a tensor of a set",
    ),
    "parameter of nothing": (
        called(named("torch._utils", "_rebuild_parameter"), b"N", b"\x88", b"N"),
        "its pickle makes a Parameter of a N",
    ),
    "moved by name": (
        called(named("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"), TENSOR, b"N", text("cpu"), b"\x89"),
        "its pickle moves something else than a tensor to a device",
    ),
    "bytes by the billion": (
        called(named("builtins", "bytearray"), number(10**12)),
        "its pickle encodes something else than text as bytes",
    ),
    "codec": (
        called(named("_codecs", "encode"), text("x"), text("zlib")),
        "its pickle encodes something else than text",
    ),
    "size of strings": (
        called(named("torch", "Size"), b"(" + text("x") + b"t"),
        "its pickle makes a torch.Size of something else than",
    ),
    "device": (called(named("torch", "device"), number(1)), "its pickle makes a torch.device of something else than a"),
    "no device": (called(named("torch", "device"), text("moon")), "Expected one of .* device type"),
    "complex": (called(named("builtins", "complex"), text("1j"), b"N"), "its pickle makes a complex number of somethi"),
    "counter": (called(named("collections", "Counter"), text("abc")), "its pickle counts with something else than num"),
    "objects in NumPy": (called(named("numpy", "dtype"), text("O8")), "its pickle holds NumPy elements of type 'O8'"),
    "NumPy scalar": (
        called(named("numpy._core.multiarray", "scalar"), FLOAT32, b"C\x01a"),
        "its pickle has a NumPy number whose type and bytes disagree",
    ),
    "NumPy order": (
        FLOAT32 + tuple_of(number(3), text(">")) + b"b",
        "its pickle holds NumPy elements that are not little-endian",
    ),
    "NumPy array": (
        called(named("numpy._core.multiarray", "_reconstruct"))
        + tuple_of(number(1), tuple_of(number(1 << 40)), FLOAT32, b"\x89", b"C\x04abcd")
        + b"b",
        r"its pickle is damaged \(ValueError",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles_are_refused(name):
    pickled, reason = HOSTILE[name]
    refused(archive(pickled + END, _0=PAIR), reason, CheckpointError)


def test_copies_without_end_are_refused():
    items = b"](" + b"".join(b"M" + bytes([i & 255, i >> 8]) for i in range(1000)) + b"eq\x01"
    bomb = items + b"](" + (named("builtins", "frozenset") + b"h\x01\x85R") * 1000 + b"e"
    tracemalloc.start()
    refused(archive(bomb + END), "its pickle copies what it holds again and again")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_damaged_archives_are_refused():
    refused(archive(TENSOR + END), "the member 'x/data/0' is missing", CheckpointError)
    refused(archive(TENSOR + END, compression=8, _0=PAIR), "the member 'x/data.pkl' is compressed", CheckpointError)
    flipped = bytearray(archive(TENSOR + END, _0=PAIR))
    flipped[flipped.index(PAIR)] ^= 1
    refused(bytes(flipped), r"the member 'x/data/0' is damaged \(Bad CRC-32", CheckpointError)
    file = io.BytesIO(archive(TENSOR + END, _0=PAIR, **{"y/data.pkl": b""}))
    refused(file.getvalue(), "it has 2 members data.pkl", CheckpointError)


def test_the_older_format_is_checked():
    assert LEGACY.count(b"l\xfc\x9cF\xf9 j\xa8P\x19.") == 1
    refused(LEGACY.replace(b"M\xe9\x03.", b"M\xea\x03."), "its protocol is 1002 instead of 1001", CheckpointError)
    refused(LEGACY[:-1], "it is truncated: the storage .* is not all there", CheckpointError)
    storages = LEGACY.rindex(b"\x80\x02]")
    refused(LEGACY[:storages] + b"\x80\x02].", "its list of storages does not fit its pickle", CheckpointError)
    listed = LEGACY[:storages] + b"\x80\x02" + BOMB + END
    refused(listed, "its list of storages does not fit its pickle", CheckpointError)
    refused(LEGACY.replace(b"M\xe9\x03.", BOMB + END), "its protocol is a list instead of 1001", CheckpointError)


def test_sizes_that_lie_take_no_memory(tmp_path):
    path = tmp_path / "old.pt"
    path.write_bytes(LEGACY[:15] + b"\x80\x04\x8e" + (1 << 60).to_bytes(8, "little") + END)
    with pytest.raises(PickleError, match="its pickle is damaged"):
        weft.load(path)


WHOLE = {"zip": TRAINING, "legacy": LEGACY, "safetensors": SAFE, "kinds": (FILES / "kinds_protocol_5.pt").read_bytes()}


@pytest.mark.parametrize("name", WHOLE)
@given(data=st.data())
def test_damage_is_a_checkpoint_error_or_harmless(name, data):
    content = bytearray(WHOLE[name])
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=4)):
        content[at] = byte
    try:
        loaded(bytes(content[: data.draw(st.integers(0, 2 * len(content)))]))
    except CheckpointError as error:
        assert str(error).startswith("cannot load <BytesIO>: ")  # noqa: PT017  most damage is noticed, not all


@given(data=st.data())
def test_damaged_pickles_are_noticed_or_harmless(data):
    pickled = bytearray(pickle.dumps({"a": [1, (2.5, "x")], "b": {3, 4}, "c": OrderedDict(d=b"e"), "f": 1j}, 2)[:-1])
    at = data.draw(st.integers(0, len(pickled)))
    pickled[at:at] = data.draw(st.binary(max_size=6))
    try:
        loaded(archive(bytes(pickled) + END + TENSOR, _0=PAIR))
    except CheckpointError as error:
        assert str(error).startswith("cannot load <BytesIO>: ")  # noqa: PT017


def test_a_storage_by_itself_is_read():
    found = weft.load(FILES / "storage.pt")["x"]
    assert isinstance(found, weft.UntypedStorage)
    assert found.nbytes() == 4


def test_tuples_of_tuples_take_time_in_proportion_to_the_file():
    """A tuple that has one tuple twice, which has one twice, and so on: there are 2 ** 200 ways to the innermost."""
    content = b"(" + number(1) + b"t" + b"2\x86" * 200 + b"."
    found = loaded(archive(content))
    for _ in range(200):
        assert found[0] is found[1]
        found = found[0]
    assert found == (1,)
