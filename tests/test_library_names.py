"""What libraries that are written for PyTorch import and call besides its public interface."""

from __future__ import annotations

import importlib.metadata
import sys

import numpy as np
import pytest

import weft
from weft import fx, nn, onnx
from weft._C import _get_accelerator, _nn
from weft._dynamo import OptimizedModule
from weft.distributed import ReduceOp
from weft.distributed.checkpoint import HuggingFaceStorageWriter
from weft.hub import HASH_REGEX, _get_torch_home, get_dir
from weft.jit import annotations
from weft.optim import SGD, Optimizer
from weft.utils import _pytree
from weft.utils.data import DataLoader, dataloader
from weft.xla._internal import tpu
from weft_as_torch import Finder


def test_what_is_no_traced_program():
    model = nn.Linear(2, 1)
    assert not isinstance(model, fx.GraphModule)
    assert not isinstance(weft.ones(1), fx.Proxy)


def test_onnx_is_refused_on_use():
    x = weft.ones(2)
    assert not onnx.is_in_onnx_export()
    with pytest.raises(NotImplementedError, match=r"torch\.onnx\.export: no ONNX files"):
        onnx.export(nn.Linear(1, 1), (x,), "x.onnx")


def test_small_names():
    assert annotations.List is list or annotations.List
    assert annotations.BroadcastingList2[int] is None
    assert get_dir().startswith(_get_torch_home())
    assert HASH_REGEX.search("resnet18-bfd8deac.pth")[1] == "bfd8deac"
    assert isinstance(ReduceOp.SUM, ReduceOp.RedOpType)
    assert tpu.num_available_devices() == 0
    assert _get_accelerator() == weft.device("cpu")
    with pytest.raises(AssertionError, match="no"):
        weft._assert(False, "no")
    tree = {"b": 1, "a": [2]}
    assert _pytree._get_node_type(tree) is dict
    assert _pytree._dict_unflatten(*_pytree._dict_flatten(tree)) == tree
    assert [key.key for key, _ in _pytree._dict_flatten_with_keys(tree)[0]] == ["b", "a"]


@pytest.mark.parametrize(
    ("args", "options", "expected"),
    [
        (("cpu",), {}, (weft.device("cpu"), None, False, None)),
        ((weft.float64,), {}, (None, weft.float64, False, None)),
        ((), {"dtype": weft.float16, "non_blocking": True}, (None, weft.float16, True, None)),
        ((weft.ones(1, dtype=weft.int32),), {}, (weft.device("cpu"), weft.int32, False, None)),
    ],
)
def test_arguments_of_to_are_parsed(args, options, expected):
    assert _nn._parse_to(*args, **options) == expected


def test_compiled_modules_are_recognized():
    model = nn.Linear(2, 1)
    compiled = weft.compile(model)
    assert isinstance(compiled, OptimizedModule)
    assert compiled._orig_mod is model
    assert not isinstance(weft.compile(len), OptimizedModule)
    assert not isinstance(model, OptimizedModule)


def test_an_optimizer_that_only_wraps_another_one_steps():
    """As in accelerate, whose optimizer derives from `Optimizer` and does not call its `__init__`."""
    weight = weft.ones(2, requires_grad=True)
    inner = SGD([weight], lr=0.5)

    class Wrapper(Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self, closure=None):
            self.optimizer.step(closure)

    weight.sum().backward()
    Wrapper(inner).step()
    assert weight.tolist() == [0.5, 0.5]


def test_passes_of_loaders_have_names():
    passes = iter(DataLoader([1, 2]))
    assert isinstance(passes, dataloader._BaseDataLoaderIter)
    assert isinstance(passes, dataloader._SingleProcessDataLoaderIter)
    assert not isinstance(passes, dataloader._MultiProcessingDataLoaderIter)


def test_elements_can_be_read_at_their_address():
    """As safetensors does to write files."""

    def at(tensor):
        kind = np.ctypeslib.as_ctypes_type(tensor.dtype.numpy)
        return list((kind * tensor.numel()).from_address(tensor.data_ptr()))

    x = weft.arange(6, dtype=weft.int32).reshape(2, 3).clone()
    start = x.data_ptr()
    assert start % 64 == 0
    assert at(x) == [0, 1, 2, 3, 4, 5]
    assert at(x[1]) == [3, 4, 5]
    x[1] *= 10
    assert at(x) == [0, 1, 2, 30, 40, 50]
    assert x.data_ptr() == start == x.untyped_storage().data_ptr()
    weight = nn.Parameter(weft.ones(2))
    SGD([weight], lr=1.0)
    weight.sum().backward()
    address = weight.data_ptr()
    with weft.no_grad():
        weight.sub_(weight.grad)
    assert (weight.data_ptr(), at(weight)) == (address, [0.0, 0.0])
    assert weft.compile(lambda x: x * (x.data_ptr() > 0))(weft.ones(2)).tolist() == [1.0, 1.0]


def test_storages_of_files(tmp_path):
    path = tmp_path / "numbers"
    np.arange(4, dtype=np.float32).tofile(path)
    storage = weft.UntypedStorage.from_file(path, shared=False, nbytes=16)
    assert storage.nbytes() == 16
    assert weft.asarray(storage, dtype=weft.float32).tolist() == [0, 1, 2, 3]
    assert weft.asarray(storage[4:8], dtype=weft.uint8).view(weft.float32).tolist() == [1.0]
    assert weft.asarray(storage[4:8]).tolist() == [0, 0, 128, 63]
    storage.fill_(0)
    assert np.fromfile(path, np.float32).tolist() == [0, 1, 2, 3]
    weft.UntypedStorage.from_file(path, shared=True, nbytes=16).fill_(255)
    assert np.isnan(np.fromfile(path, np.float32)).all()


def test_published_checkpoints_are_written_by_parts(tmp_path):
    state = {"weight": weft.arange(4.0)}
    writer = HuggingFaceStorageWriter(tmp_path, save_distributed=True)
    weft.distributed.checkpoint.save(state, storage_writer=writer)
    read = {"weight": weft.zeros(4)}
    weft.distributed.checkpoint.load(
        read, storage_reader=weft.distributed.checkpoint.HuggingFaceStorageReader(tmp_path)
    )
    assert read["weight"].tolist() == [0, 1, 2, 3]
    with pytest.raises(NotImplementedError, match="pass save_distributed=True"):
        HuggingFaceStorageWriter(tmp_path)


@pytest.mark.parametrize(("asked", "packages"), [("1", {"torch", "torch_xla"}), ("0", {"torch"})])
def test_distributions_are_listed_of_torch_xla_where_it_is_asked_for(monkeypatch, asked, packages):
    monkeypatch.setenv("USE_TORCH_XLA", asked)
    monkeypatch.delitem(sys.modules, "weft_xla", raising=False)  # other tests import it
    context = importlib.metadata.DistributionFinder.Context()
    versions = {found.metadata["Name"]: found.version for found in Finder().find_distributions(context)}
    assert versions == dict.fromkeys(packages, weft.__version__)


def test_libraries_compiled_for_pytorch_are_refused_as_those_that_do_not_fit():
    with pytest.raises(OSError, match=r"ops\.load_library: _C\.so is compiled for PyTorch; .*custom_op"):
        weft.ops.load_library("_C.so")


def test_names_of_torchscript_that_libraries_refer_to():
    with pytest.raises(weft.jit.Error):
        raise weft.jit.Error("no such operator")
    assert weft.jit.annotations is annotations
    assert nn.Linear(1, 1).dump_patches is False
