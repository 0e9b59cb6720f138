"""What `save` writes is what PyTorch writes: recorded files of PyTorch's, loaded and saved again, are the oracle."""

from __future__ import annotations

import gc
import io
import pickle
import pickletools
import weakref
import zipfile
from pathlib import Path

import pytest

import weft
from weft import nn
from weft._checkpoint.torch_names import name_in_torch
from weft.errors import CheckpointError

FILES = Path(__file__).parent / "files"


def saved(obj, **options):
    file = io.BytesIO()
    weft.save(obj, file, **options)
    return file.getvalue()


def again(obj, **options):
    return weft.load(io.BytesIO(saved(obj, **options)))


def members(content):
    """The members of an archive by their names below the folder."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def globals_of(content):
    return {arg for opcode, arg, _ in pickletools.genops(members(content)["data.pkl"]) if opcode.name == "GLOBAL"}


@pytest.mark.parametrize("name", ["training", "meta", "whole"])
def test_a_file_of_pytorchs_is_written_again_byte_for_byte(name):
    content = (FILES / f"{name}.pt").read_bytes()
    theirs, ours = members(content), members(saved(weft.load(io.BytesIO(content), weights_only=name != "whole")))
    assert list(ours) == list(theirs)
    del theirs[".data/serialization_id"], ours[".data/serialization_id"]
    assert ours == theirs


def test_members_are_where_pytorch_computes_them():
    """Their offsets follow from the sizes of those before, which `calculate_storage_offsets` relies on."""
    theirs = (FILES / "training.pt").read_bytes()
    file = io.BytesIO()
    weft.save(weft.load(io.BytesIO(theirs)), file)
    with zipfile.ZipFile(io.BytesIO(theirs)) as a, zipfile.ZipFile(file) as b:
        heads = [[(x.header_offset, x.file_size) for x in archive.infolist()] for archive in (a, b)]
        shift = len("training") - len("archive")
        assert [size for _, size in heads[0]] == [size for _, size in heads[1]]
        assert heads[1][0] == heads[0][0]
        assert abs(heads[1][1][0] - heads[0][1][0]) <= 64 * abs(shift)


def _globals(file):
    return {arg for opcode, arg, _ in pickletools.genops(file) if opcode.name == "GLOBAL"}


def test_older_files_are_those_of_pytorchs():
    state = weft.load(FILES / "training_legacy.pt")
    content = saved(state, _use_new_zipfile_serialization=False)
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(content))
    found = weft.load(io.BytesIO(content))
    assert list(found) == list(state)
    theirs, ours = io.BytesIO((FILES / "training_legacy.pt").read_bytes()), io.BytesIO(content)
    for _ in range(3):  # magic number, protocol, facts of the system
        assert pickle.load(ours) == pickle.load(theirs)
    assert _globals(ours) == _globals(theirs)


def test_names_in_strings_are_not_replaced():
    obj = {"text": "cweft.nn._linear\nLinear\n", "bytes": b"cweft._base.size\nSize\nq\x00", 3: weft.Size([1])}
    assert again(obj) == obj
    assert globals_of(saved(obj)) == {"torch Size", "_codecs encode"}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_is_read(protocol):
    obj = {"x": weft.ones(2), "bytes": bytes(range(256)), "long": "x" * 70_000, "int": 1 << 200}
    found = weft.load(io.BytesIO(saved(obj, pickle_protocol=protocol)))
    assert found.pop("x").tolist() == [1, 1]
    assert found == {name: x for name, x in obj.items() if name != "x"}


def test_parts_are_shared_in_any_order():
    base = weft.arange(1000.0)
    for order in ("ab", "aba", "bca", "abc", "cab"):
        parts = {"a": base[:10], "b": base[5:15], "c": base}
        found = again([parts[name] for name in order])
        found[order.index("a")][7] = -1
        if "b" in order:
            assert found[order.index("b")][2].item() == -1
        if "c" in order:
            assert found[order.index("c")][7].item() == -1


def test_a_storage_of_several_types_is_untyped():
    x = weft.ones(4)
    found = again({"x": x, "bits": x.view(weft.int32)})
    found["x"].zero_()
    assert found["bits"].tolist() == [0] * 4
    assert "torch.storage UntypedStorage" in globals_of(saved({"x": x, "bits": x.view(weft.int32)}))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_are_saved():
    x = weft.arange(4.0)
    typed = weft.storage.TypedStorage(wrap_storage=x.untyped_storage(), dtype=x.dtype)
    found = again({"typed": typed, "x": x[1:3]})
    found["x"].fill_(7)
    assert found["typed"].tolist() == [0, 7, 7, 3]
    found = again([x.untyped_storage()])[0]
    assert isinstance(found, weft.UntypedStorage)
    assert (found.nbytes(), found.tolist()) == (16, x.untyped_storage().tolist())
    with pytest.raises(pickle.PicklingError, match="view the same data as different types"):
        saved([typed, x.untyped_storage()])


def test_attributes_names_and_kinds_come_back():
    parameter = nn.Parameter(weft.ones(2), requires_grad=False)
    parameter.rank = 3
    tensor = weft.zeros(2, 3, names=("N", "C"))
    tensor.note = "n"
    lazy = nn.parameter.UninitializedParameter(dtype=weft.float64)
    found = again([parameter, tensor, nn.Buffer(weft.ones(1), persistent=False), lazy])
    assert (found[0].rank, found[0].requires_grad) == (3, False)
    assert (found[1].note, found[1].names) == ("n", ("N", "C"))
    assert (type(found[2]), found[2].persistent) == (nn.Buffer, False)
    assert (type(found[3]), found[3].dtype) == (nn.parameter.UninitializedParameter, weft.float64)


def test_pytorchs_names_are_those_of_its_modules():
    names = {
        nn.Linear: "torch.nn.modules.linear.Linear",
        nn.parameter.UninitializedBuffer: "torch.nn.parameter.UninitializedBuffer",
        weft.optim.AdamW: "torch.optim.adamw.AdamW",
        weft.optim.SGD: "torch.optim.sgd.SGD",
        weft.optim.lr_scheduler.StepLR: "torch.optim.lr_scheduler.StepLR",
        weft.distributions.Normal: "torch.distributions.normal.Normal",
        weft.Size: "torch.Size",
        nn.functional.relu: "torch.nn.functional.relu",
        weft.utils.hooks.RemovableHandle: "torch.utils.hooks.RemovableHandle",
        nn.attention.SDPBackend: "torch.nn.attention.SDPBackend",
        weft.owners.Stored: "weft._lazy.owner.Stored",  # which PyTorch has not
    }
    for thing, name in names.items():
        assert ".".join(name_in_torch(thing.__module__, thing.__qualname__)) == name


def test_modules_are_trusted_by_their_classes():
    layers = [nn.Sequential, nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d, nn.Flatten, nn.Linear]
    with weft.serialization.safe_globals(layers):
        assert weft.serialization.get_safe_globals()[-len(layers) :] == layers
        net, wanted = weft.load(FILES / "whole.pt")
        for module in (net, again(net)):
            weft.testing.assert_close(module(weft.ones(1, 1, 6, 6)), wanted)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_modules_have_in_files_what_pytorchs_need():
    recurrent, lazy, layer = nn.LSTM(2, 3), nn.LazyLinear(3), nn.TransformerEncoderLayer(4, 2, 8, activation="gelu")
    state = recurrent.__getstate__()
    assert [state["_flat_weights_names"][0], state["_flat_weights"][0]] == ["weight_ih_l0", recurrent.weight_ih_l0]
    assert layer.__getstate__()["activation_relu_or_gelu"] == 2
    recurrent, lazy = weft.load(io.BytesIO(saved([recurrent, lazy])), weights_only=False)
    assert "_flat_weights" not in vars(recurrent)
    assert lazy(weft.ones(2, 4)).shape == (2, 3)
    assert not lazy._forward_pre_hooks
    assert not lazy._load_state_dict_pre_hooks


class Counted(weft.Tensor):
    """A class of tensors."""


def test_subclasses_are_saved_as_their_class():
    x = weft.ones(2).as_subclass(Counted)
    x.count = 2
    content = saved(x)
    with pytest.raises(pickle.UnpicklingError, match=r"test_torch_writer\.Counted was not an allowed global"):
        weft.load(io.BytesIO(content))
    for options in ({"weights_only": False}, {"weights_only": True}):
        with weft.serialization.safe_globals([Counted]):
            found = weft.load(io.BytesIO(content), **options)
        assert (type(found), found.count, found.tolist()) == (Counted, 2, [1, 1])


def test_jagged_tensors_come_back():
    x = weft.nested.nested_tensor([weft.ones(2), weft.zeros(3)], layout=weft.jagged)
    assert [part.tolist() for part in again(x).unbind()] == [[1, 1], [0, 0, 0]]


def test_extra_files_need_an_archive():
    with pytest.raises(CheckpointError, match="cannot save extra files in the older format"):
        weft.save(1, io.BytesIO(), _use_new_zipfile_serialization=False, _extra_files={"a": "b"})


def test_what_was_saved_is_freed_at_once():
    tensor = weft.ones(2)
    value = weakref.ref(tensor._read())
    gc.collect()
    gc.disable()
    try:
        saved({"x": tensor, "module": nn.Linear(2, 1)})
        del tensor
        assert value() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("in_archive", [True, False])
def test_what_was_loaded_is_freed_at_once(weights_only, in_archive):
    content = saved({"x": [weft.ones(2)]}, _use_new_zipfile_serialization=in_archive)
    gc.collect()
    gc.disable()
    try:
        found = weft.load(io.BytesIO(content), weights_only=weights_only)
        value = weakref.ref(found["x"][0]._read())
        del found
        assert value() is None
    finally:
        gc.enable()


def test_objects_of_the_older_format_follow_one_another():
    file = io.BytesIO(b"head")
    file.seek(4)
    objects = [{"x": weft.arange(3.0)}, 1, weft.ones(2)]
    for obj in objects:
        weft.save(obj, file, _use_new_zipfile_serialization=False)
    file.seek(4)
    assert weft.load(file)["x"].tolist() == [0, 1, 2]
    assert weft.load(file) == 1
    assert weft.load(file, weights_only=False).tolist() == [1, 1]
    with pytest.raises(EOFError, match="has been read to its end"):
        weft.load(file)


def test_files_of_text_are_refused(tmp_path):
    path = tmp_path / "x.pt"
    weft.save(1, path)
    with open(path) as text, pytest.raises(TypeError, match="opened as text: open it with 'rb'"):
        weft.load(text)
    with pytest.raises(TypeError, match="opened as text: open it with 'wb'"):
        weft.save(1, io.StringIO())
