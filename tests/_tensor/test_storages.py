"""Storages as objects: bytes and elements, sizes that change, identity, and tensors made on them."""

from __future__ import annotations

import copy
import pickle

import pytest

import weft as torch
from weft import nn

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


# --- what they are ----------------------------------------------------------------------------------------------


def test_one_object_for_a_storage():
    x = torch.ones(4)
    storage = x.untyped_storage()
    assert x[1:].untyped_storage() is storage
    assert x.detach().untyped_storage() is storage
    assert x.clone().untyped_storage() is not storage
    assert nn.Parameter(x).untyped_storage() is storage
    assert {x.untyped_storage(), x.view(2, 2).untyped_storage()} == {storage}
    assert storage._cdata == x[1:].untyped_storage()._cdata != x.clone().untyped_storage()._cdata
    x.data = torch.zeros(2)
    assert x.untyped_storage() is not storage
    assert storage.nbytes() == 16


def test_addresses():
    x = torch.zeros(4)
    start = x.data_ptr()
    assert start
    assert x[1:].data_ptr() == start + 4
    assert x.untyped_storage().data_ptr() == start == x.view(torch.int16).data_ptr()
    x += 1
    assert x.data_ptr() == start != torch.zeros(4).data_ptr()
    x.untyped_storage().resize_(0)
    assert x.data_ptr() == x.untyped_storage().data_ptr() == 0
    x.untyped_storage().resize_(16)
    assert x.data_ptr() == start
    x.untyped_storage().resize_(1 << 12)
    assert x.data_ptr() != start  # other storages may have been given what follows


def test_bytes_are_read_and_written():
    x = torch.tensor([1, 258], dtype=torch.int16)
    storage = x.untyped_storage()
    assert storage.tolist() == list(storage) == [1, 0, 2, 1]
    assert (storage[0], storage[-1], storage[1:3].tolist()) == (1, 1, [0, 2])
    storage[0] = 7
    storage[2:] = 0
    assert x.tolist() == [7, 0]
    storage.byteswap(torch.int16)
    assert x.tolist() == [7 << 8, 0]
    storage.copy_(torch.tensor([3, 4], dtype=torch.int16).untyped_storage())
    assert x.tolist() == [3, 4]
    assert x.untyped_storage().fill_(1).untyped() is storage
    assert x.tolist() == [257, 257]
    for wrong in (4, -5):
        with pytest.raises(IndexError, match=f"index {wrong} out of range for storage of size 4"):
            storage[wrong]
    with pytest.raises(TypeError, match="can't index a UntypedStorage with str"):
        storage["a"]
    with pytest.raises(RuntimeError, match="size mismatch, got 2 elements for a storage of 4"):
        storage.copy_(torch.UntypedStorage(2))


def test_writes_reach_tensors_that_require_gradients():
    p = nn.Parameter(torch.ones(2))
    p.untyped_storage().fill_(0)
    assert p.tolist() == [0, 0]
    assert p.requires_grad
    assert p.is_leaf


def test_made_alone():
    assert torch.UntypedStorage(3).tolist() == [0, 0, 0]
    assert torch.UntypedStorage([1, 2]).tolist() == [1, 2]
    assert torch.UntypedStorage().nbytes() == 0
    assert repr(torch.UntypedStorage(2, device="meta")) == "...\n[torch.storage.UntypedStorage(device=meta) of size 2]"
    made = torch.UntypedStorage.from_buffer(b"\0\1\0\2", byte_order="big", dtype=torch.int16)
    assert torch.empty(0, dtype=torch.int16).set_(made).tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="argument 'dtype' cannot be None"):
        torch.UntypedStorage.from_buffer(b"ab")
    with pytest.raises(ValueError, match="Unknown byte_order value 'middle'"):
        torch.UntypedStorage.from_buffer(b"ab", byte_order="middle", dtype=torch.uint8)


def test_facts():
    storage = torch.ones(2).untyped_storage()
    assert (storage.device, storage.get_device(), storage.is_cuda) == (torch.device("cpu"), -1, False)
    assert (storage.element_size(), storage.type(), storage.filename) == (1, "torch.storage.UntypedStorage", None)
    assert storage.resizable()
    assert not storage.is_pinned()
    assert storage.share_memory_() is storage.cpu() is storage.pin_memory() is storage
    assert storage.to(device="meta").device.type == "meta"
    assert torch.is_storage(storage)


def test_copies():
    x = torch.ones(2)
    storage = x.untyped_storage()
    storage.clone().fill_(0)
    copy.copy(storage).fill_(0)
    pickle.loads(pickle.dumps(storage)).fill_(0)
    assert x.tolist() == [1, 1]
    y, other = copy.deepcopy([x, storage])
    assert y.untyped_storage() is other is not storage


# --- sizes that change ------------------------------------------------------------------------------------------


def test_freed_and_filled_again():
    x = torch.arange(6.0).view(2, 3)
    row, storage = x[1], x.untyped_storage()
    size = storage.size()
    storage.resize_(0)
    assert (storage.nbytes(), x.shape, row.shape) == (0, (2, 3), (3,))
    with pytest.raises(RuntimeError, match=r"size \[6\] requires a storage size of 24, which is out of bounds"):
        x.tolist()
    storage.resize_(size)
    assert x.sum().item() == 0
    x.copy_(torch.ones(2, 3))
    row += 1
    assert x.tolist() == [[1, 1, 1], [2, 2, 2]]


def test_flat_parameters_whose_memory_comes_and_goes():
    """What fully sharded training does with a parameter of all weights."""
    shard = torch.arange(6.0)
    flat, whole = nn.Parameter(shard.clone()), torch.empty(6)
    own = flat.data
    whole.untyped_storage().resize_(0)
    for _ in range(2):
        whole.untyped_storage().resize_(24)
        whole.copy_(own)
        flat.data = whole
        weight, bias = torch.split(flat, [4, 2])
        (weight.view(2, 2).sum() * 2 + bias.sum()).backward()
        flat.data = own
        whole.untyped_storage().resize_(0)
    assert flat.tolist() == shard.tolist()
    assert flat.grad.tolist() == [4, 4, 4, 4, 2, 2]


def test_gradients_flow_as_before():
    p = nn.Parameter(torch.ones(2))
    p.untyped_storage().resize_(0)
    assert p.requires_grad
    assert p.is_leaf
    p.untyped_storage().resize_(8)
    with torch.no_grad():
        p.fill_(2)
    (p * p).sum().backward()
    assert p.grad.tolist() == [4, 4]
    x = torch.ones(2, requires_grad=True)
    y = x * 3
    y.untyped_storage().resize_(0)
    y.untyped_storage().resize_(8)
    with torch.no_grad():
        y.fill_(5)
    (y * y).sum().backward()
    assert x.grad.tolist() == [30, 30]


def test_a_storage_grows_with_a_view():
    x = torch.ones(4)
    part = x[2:]
    part.resize_(5)[0] = 7
    assert x.tolist() == [1, 1, 7, 1]
    assert part.tolist() == [7, 1, 0, 0, 0]
    assert x.untyped_storage().nbytes() == 28
    x.resize_(2, 4)
    assert x.tolist() == [[1, 1, 7, 1], [0, 0, 0, 0]]


def test_sizes_that_are_refused():
    storage = torch.ones(3).untyped_storage()
    for wrong in (7, -4):
        with pytest.raises(ValueError, match=f"resize_: {wrong} bytes are not a number of whole Float elements"):
            storage.resize_(wrong)


def test_a_captured_function_sees_the_new_size():
    x = torch.ones(2)
    double = torch.compile(lambda: x * 2)
    for _ in range(3):
        double()
    x.untyped_storage().resize_(0)
    x.untyped_storage().resize_(8)
    assert double().tolist() == [0, 0]


def test_a_function_that_resizes_is_run_as_it_stands():
    def refill(x):
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(8)
        return x + 1

    function = torch.compile(refill)
    with pytest.warns(UserWarning, match="to resize a storage"):
        assert function(torch.ones(2)).tolist() == [1, 1]
    x = torch.ones(2)
    assert function(x).tolist() == [1, 1]
    assert x.tolist() == [0, 0]


# --- tensors on storages ----------------------------------------------------------------------------------------


def test_set():
    storage = torch.UntypedStorage(8)
    x = torch.empty(0).set_(storage, 0, (2,)).fill_(1)
    assert storage.tolist() == [0, 0, 128, 63] * 2
    assert torch.empty(0, dtype=torch.int32).set_(storage)[0].item() == 0x3F800000
    assert torch.empty(0).set_(storage, 1, (1,)).storage_offset() == 1
    assert torch.empty(0).set_(storage, 0, (2, 2), (1, 0)).tolist() == [[1, 1], [1, 1]]
    assert torch.empty(0).set_(x.storage()).is_set_to(x)
    assert torch.empty(0).set_(torch.UntypedStorage([1, 2, 3, 4, 5])).shape == (1,)
    torch.empty(0).set_(storage, 1, (2,))
    assert storage.nbytes() == 12
    assert x.set_().numel() == 0
    with pytest.raises(RuntimeError, match=r"Expected a Storage of type torch\.int32 or an UntypedStorage, but got"):
        torch.empty(0, dtype=torch.int32).set_(torch.ones(1).storage())
    with pytest.raises(RuntimeError, match="storage on different device meta"):
        torch.empty(0).set_(torch.UntypedStorage(4, device="meta"))


# --- storages of elements ---------------------------------------------------------------------------------------


def test_typed():
    x = torch.arange(3.0)
    storage = x.storage()
    assert (storage.size(), storage.nbytes(), storage.element_size(), storage.dtype) == (3, 12, 4, torch.float32)
    assert storage.data_ptr() == x.data_ptr()
    assert storage.untyped() is x.untyped_storage()
    storage[1] = 5
    storage[2:] = 7
    assert (x.tolist(), storage[1], storage.tolist()) == ([0, 5, 7], 5, [0, 5, 7])
    assert repr(storage) == " 0.0\n 5.0\n 7.0\n[torch.storage.TypedStorage(dtype=torch.float32, device=cpu) of size 3]"
    with pytest.raises(RuntimeError, match=r"slices are only supported in UntypedStorage\.__getitem__"):
        storage[0:1]
    assert storage.resize_(4).size() == 4
    assert storage.double().dtype is torch.float64
    assert storage.type("torch.IntStorage").tolist() == [0, 5, 7, 0]
    assert (storage.type(), storage.pickle_storage_type()) == ("torch.FloatStorage", "FloatStorage")
    assert x.storage_type() is torch.FloatStorage
    assert copy.deepcopy(storage).tolist() == pickle.loads(pickle.dumps(storage)).tolist() == storage.tolist()
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        torch.TypedStorage([1], dtype=torch.int8)
    with pytest.raises(TypeError, match="wrap_storage must be UntypedStorage, not Tensor"):
        torch.storage.TypedStorage(wrap_storage=x)


def test_classes_by_type():
    assert torch.FloatStorage([1, 2]).tolist() == [1, 2]
    assert torch.LongStorage(2).tolist() == [0, 0]
    assert torch.ComplexFloatStorage.dtype is torch.complex64
    assert isinstance(torch.ones(1).storage(), torch.FloatStorage)
    assert not isinstance(torch.ones(1).storage(), torch.DoubleStorage)
    assert torch.FloatStorage.from_buffer(b"\0\0\x80?", byte_order="little").tolist() == [1]
    assert torch.FloatTensor(torch.FloatStorage([1, 2])).tolist() == [1, 2]
    with pytest.raises(TypeError, match=r"FloatStorage\(\) takes a size or a sequence of numbers, not float"):
        torch.FloatStorage(1.5)
