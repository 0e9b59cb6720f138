"""Checkpoints and memory that go between the package and PyTorch."""

from __future__ import annotations

import io
import pickle
import pickletools
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft import serialization

torch = pytest.importorskip("torch", reason="needs torch")
modules = pytest.importorskip("tests.oracle.modules", reason="needs torch", exc_type=ImportError)
record = pytest.importorskip("tests._checkpoint.record", reason="needs torch", exc_type=ImportError)
safetensors = pytest.importorskip("safetensors.torch", reason="needs torch", exc_type=ImportError)

pytestmark = pytest.mark.oracle

SAVED = [{}, {"pickle_protocol": 4}, {"pickle_protocol": 5}, {"_use_new_zipfile_serialization": False}]


def through(obj, *, weights_only=True, **options):
    file = io.BytesIO()
    torch.save(obj, file, **options)
    file.seek(0)
    return weft.load(file, weights_only=weights_only)


def elements_of(x):
    """The elements of a tensor of any layout."""
    if x.is_nested:
        return [part.tolist() for part in x.unbind()]
    return (x.dequantize() if x.is_quantized else x.to_dense()).tolist()


def assert_same(ours, theirs):
    """Equal in value and kind, with tensors of both packages in the same places."""
    if isinstance(theirs, torch.Tensor):
        assert (str(ours.dtype), ours.requires_grad) == (str(theirs.dtype), theirs.requires_grad)
        assert theirs.is_nested or tuple(ours.shape) == tuple(theirs.shape)  # PyTorch's nested tensors have no shape
        assert repr(ours.layout) == repr(theirs.layout)
        assert elements_of(ours) == elements_of(theirs)
    elif isinstance(theirs, np.ndarray):
        np.testing.assert_array_equal(ours, theirs, strict=True)
    elif isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key, value in theirs.items():
            assert_same(ours[key], value)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other)
    else:
        assert ours == theirs or str(ours) == str(theirs)
        assert isinstance(theirs, torch.dtype) or type(ours).__name__ == type(theirs).__name__


@pytest.mark.parametrize("options", SAVED)
@pytest.mark.parametrize("name", ["training", "kinds"])
def test_what_pytorch_saves_is_loaded(name, options):
    saved = getattr(record, name)()
    assert_same(through(saved, **options), saved)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_any_view_is_loaded(sizes, data):
    base = torch.arange(float(np.prod(sizes))).reshape(sizes)
    view = base.permute(data.draw(st.permutations(range(len(sizes)))))
    for dim, size in enumerate(view.shape):
        start = data.draw(st.integers(0, size))
        view = view[(slice(None),) * dim + (slice(start, None, data.draw(st.integers(1, 3))),)]
    if 1 in view.shape:
        view = view.expand([3 if n == 1 else n for n in view.shape])
    assert_same(through([view, base]), [view, base])


def test_the_same_things_are_refused(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.nn.Linear(1, 1), path)
    names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    assert sorted(serialization.get_unsafe_globals_in_checkpoint(path)) == sorted(names)
    for load in (torch.load, weft.load):
        with pytest.raises(
            pickle.UnpicklingError, match=r"torch.nn.modules.linear.Linear was not an allowed global by"
        ):
            load(path)


# --- what is saved here, PyTorch loads ---


def back(obj, *, weights_only=True, **options):
    file = io.BytesIO()
    weft.save(obj, file, **options)
    if zipfile.is_zipfile(file):  # in this process, PyTorch would find what it does not have
        opcodes = pickletools.genops(zipfile.ZipFile(file).read("archive/data.pkl"))
        assert not [arg for opcode, arg, _ in opcodes if opcode.name == "GLOBAL" and arg.startswith("weft")]
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


@pytest.mark.filterwarnings(
    "ignore:Sparse invariant checks",
    "ignore:Sparse CSR",
    "ignore:torch.quantize_per_tensor",
    "ignore:TypedStorage",
    "ignore:The PyTorch API of nested tensors",
)
@pytest.mark.parametrize("name", ["training", "kinds", "layouts", "quantized"])
def test_pytorch_loads_what_is_saved(name):
    saved = getattr(record, name)()
    assert_same(back(through(saved), weights_only=name != "kinds"), saved)


def test_pytorch_loads_the_older_format():
    saved = record.training()
    assert_same(back(through(saved), _use_new_zipfile_serialization=False), saved)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_pytorch_loads_any_view(sizes, data):
    base = weft.arange(float(np.prod(sizes))).reshape(sizes)
    view = base.permute(data.draw(st.permutations(range(len(sizes)))))
    for dim, size in enumerate(view.shape):
        start = data.draw(st.integers(0, size - 1))
        view = view[(slice(None),) * dim + (slice(start, None, data.draw(st.integers(1, 3))),)]
    obj = data.draw(st.permutations([view, base, view[:1]]))[: data.draw(st.integers(1, 3))]
    loaded = back(list(obj))
    assert_same(list(obj), loaded)
    for x, y in zip(obj, loaded, strict=True):
        x.zero_(), y.zero_()
    assert_same(list(obj), loaded)


MODULES = {
    "Linear": lambda nn: nn.Linear(3, 2),
    "Sequential": lambda nn: nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(0.1), nn.Flatten()
    ),
    "LSTM": lambda nn: nn.LSTM(3, 4, 2, batch_first=True),
    "GRUCell": lambda nn: nn.GRUCell(3, 4),
    "MultiheadAttention": lambda nn: nn.MultiheadAttention(4, 2, batch_first=True),
    "TransformerEncoderLayer": lambda nn: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
    "Embedding": lambda nn: nn.Embedding(5, 3, padding_idx=0),
    "ModuleList": lambda nn: nn.ModuleList([nn.LayerNorm(3), nn.GELU(approximate="tanh")]),
    "ParameterDict": lambda nn: nn.ModuleDict({"a": nn.Bilinear(2, 3, 4), "b": nn.PReLU()}),
    "losses": lambda nn: nn.ModuleList([nn.CrossEntropyLoss(), nn.BCEWithLogitsLoss(), nn.SmoothL1Loss(beta=0.5)]),
    "lazy": lambda nn: nn.LazyLinear(3),
}


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("name", MODULES)
def test_pytorch_loads_whole_modules(name):
    ours, theirs = MODULES[name](weft.nn), MODULES[name](torch.nn)
    loaded = back(ours, weights_only=False)
    assert str(loaded) == str(theirs)
    assert [type(module) for module in loaded.modules()] == [type(module) for module in theirs.modules()]
    if name != "lazy":
        assert_same(dict(ours.state_dict()), dict(loaded.state_dict()))
    assert all(hasattr(loaded, attribute) for attribute in vars(theirs))


@pytest.mark.parametrize("name", [name for name, entry in modules.entries().items() if modules.counterpart(entry)])
def test_modules_go_both_ways(name):
    entry = modules.entries()[name]
    for training in (False, True):
        with modules.quietly():
            samples = entry.module_inputs_func(
                entry, device="cpu", dtype=torch.float32, requires_grad=False, training=training
            )[:2]
        for sample in samples:
            with modules.quietly():
                twins = modules.build(entry, sample, "float32", training)
                twins.ours.load_state_dict(through(twins.theirs.state_dict()))
                loaded = back(twins.ours, weights_only=False), through(twins.theirs, weights_only=False)
            assert [type(module) for module in loaded] == [type(twins.theirs), type(twins.ours)]
            for module in loaded:
                assert repr(module) == repr(twins.theirs)
                assert_same(dict(module.state_dict()), dict(twins.theirs.state_dict()))
            if not twins.is_random:
                calls = (twins.theirs, twins.call), *zip(loaded, (twins.call, twins.our_call), strict=True)
                with modules.quietly():
                    wanted, *outputs = [modules.outputs_of(*call) for call in calls]
                for found in outputs:
                    for output, x in wanted.items():
                        np.testing.assert_allclose(found[output].tolist(), x.tolist(), rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_modules_without_sizes_go_both_ways():
    for lib, load in ((torch, back), (weft, through)):
        other = weft if lib is torch else torch
        module = load(other.nn.LazyLinear(3), weights_only=False)
        assert module(lib.ones(2, 4)).shape == (2, 3)
        assert type(module) is lib.nn.Linear


def test_pytorch_trusts_classes_by_its_names():
    net = weft.nn.Sequential(weft.nn.Linear(2, 1), weft.nn.Tanh())
    classes = [torch.nn.Sequential, torch.nn.Linear, torch.nn.Tanh]
    with torch.serialization.safe_globals([*classes, set]):
        assert type(back(net)[0]) is torch.nn.Linear
    ours = [weft.nn.Sequential, weft.nn.Linear, weft.nn.Tanh]
    with serialization.safe_globals(ours):
        assert type(through(torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Tanh()))[0]) is weft.nn.Linear


def test_pytorch_loads_optimizers_and_schedules():
    ours = weft.nn.Linear(2, 1)
    optimizer = weft.optim.AdamW(ours.parameters(), lr=0.1)
    schedule = weft.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    ours(weft.ones(1, 2)).sum().backward()
    optimizer.step()
    schedule.step()
    module, states, step = back([ours, (optimizer.state_dict(), schedule.state_dict()), schedule], weights_only=False)
    theirs = torch.optim.AdamW(module.parameters(), lr=1.0)
    theirs.load_state_dict(states[0])
    torch.optim.lr_scheduler.CosineAnnealingLR(theirs, 3).load_state_dict(states[1])
    assert theirs.param_groups[0]["lr"] == pytest.approx(optimizer.param_groups[0]["lr"])
    assert type(step) is torch.optim.lr_scheduler.CosineAnnealingLR
    for x in (weft.ones(1, 2), torch.ones(1, 2)):
        net, opt = (ours, optimizer) if isinstance(x, weft.Tensor) else (module, theirs)
        opt.zero_grad()
        net(x).sum().backward()
        opt.step()
    torch.testing.assert_close(torch.tensor(ours.weight.tolist()), module.weight.detach())


def test_pytorch_maps_files_of_ours(tmp_path):
    weft.save({"a": weft.arange(1000), "b": weft.ones(3)}, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", mmap=True)["a"].sum().item() == 499500


def test_safetensors_both_ways(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = {name: t for name, t in record.kinds()["types"].items() if name != "complex128"}
    ours = {name: weft.tensor([0, 1, 1]).to(getattr(weft, name)) for name in tensors}
    weft.save(ours, path)
    assert_same(ours, safetensors.load_file(path))
    safetensors.save_file(tensors, path)
    assert_same(weft.load(path), tensors)


def test_dlpack_both_ways():
    theirs = torch.arange(6.0).reshape(2, 3)
    ours = weft.from_dlpack(theirs)
    assert_same(ours, theirs)
    assert ours.data_ptr() == theirs.data_ptr()
    back = torch.from_dlpack(ours)
    assert back.data_ptr() == theirs.data_ptr()
    assert_same(weft.from_dlpack(theirs.t()), theirs.t())
    assert_same(weft.from_dlpack(torch.utils.dlpack.to_dlpack(theirs)), theirs)
    assert_same(ours, torch.utils.dlpack.from_dlpack(weft.to_dlpack(ours)))
    assert_same(weft.asarray(theirs), theirs)
    assert_same(ours, torch.asarray(ours))
