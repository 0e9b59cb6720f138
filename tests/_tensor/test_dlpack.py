"""DLPack: memory that tensors share with other libraries."""

import ctypes

import jax.numpy as jnp
import numpy as np
import pytest

import weft as torch
from weft.utils.dlpack import DLDeviceType

TYPES = ["bool", "uint8", "int8", "int16", "int64", "float16", "float64", "complex64"]


class Unversioned:
    """An object whose `__dlpack__` is that of before there were versions."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", TYPES)
def test_numpy_and_tensors_write_to_the_same_elements(dtype):
    x = torch.zeros(3, 2, dtype=getattr(torch, dtype))
    array = np.from_dlpack(x.t()[1:])
    array[0, 1] = 1
    assert x[1, 1] == 1
    x[2] = 1
    assert array[0].tolist() == [0, 1, 1]


@pytest.mark.parametrize("wrap", [lambda a: a, Unversioned, lambda a: a.__dlpack__(), lambda a: torch.from_dlpack(a)])
@pytest.mark.parametrize("dtype", TYPES)
def test_tensors_over_what_others_have(wrap, dtype):
    array = np.zeros((2, 3), dtype)
    x = torch.from_dlpack(wrap(array))
    array[0, 1] = 1
    assert x[0, 1] == 1
    x[1] = 1
    assert array.tolist() == [[0, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_types_that_numpy_has_not(dtype, max_version):
    x = torch.ones(2, 3).to(dtype)
    y = torch.from_dlpack(x.__dlpack__(max_version=max_version))
    assert y.dtype is dtype
    y[0] = 2
    assert x.float().tolist() == [[2, 2, 2], [1, 1, 1]]


def test_read_only_memory_is_not_written_to():
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        x = torch.from_dlpack(array.__dlpack__(max_version=(1, 0)))
    x += 1
    assert array.tolist() == [0, 1, 2]


def test_arrays_of_jax_keep_their_elements():
    array = jnp.ones(3)
    x = torch.from_dlpack(array)
    x += 1
    assert array.tolist() == [1, 1, 1]
    assert jnp.from_dlpack(x).tolist() == [2, 2, 2]


def test_copies_and_devices():
    array = np.zeros(2)
    copy = torch.from_dlpack(array, copy=True)
    array[0] = 1
    assert copy.tolist() == [0, 0]
    assert torch.zeros(1).__dlpack_device__() == (1, 0)
    assert torch.from_dlpack(array, device="cpu", copy=False).tolist() == [1, 0]


def test_a_capsule_is_consumed_once():
    capsule = torch.to_dlpack(torch.ones(2))
    assert torch.from_dlpack(capsule).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="can be consumed only once"):
        torch.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="invalid capsule"):
        torch.from_dlpack(3)


def test_what_cannot_be_shared_is_refused():
    with pytest.raises(BufferError, match=r"^Can't export tensors that require gradient, use tensor.detach\(\)$"):
        torch.from_dlpack(torch.ones(1, requires_grad=True))
    with pytest.raises(BufferError, match="conjugate"):
        torch.ones(1, dtype=torch.complex64).conj().__dlpack__()
    with pytest.raises(AssertionError, match="stream should be None on cpu"):
        torch.ones(1).__dlpack__(stream=1)
    with pytest.raises(TypeError, match="stream must be int or none"):
        torch.ones(1).__dlpack__(stream="1")
    with pytest.raises(BufferError, match=r"layout other than torch\.strided"):
        torch.eye(2).to_sparse().__dlpack__()
    with pytest.raises(BufferError, match="types are not supported by dlpack"):
        torch.from_dlpack(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))
    with pytest.raises(BufferError, match="Unsupported device_type: 16"):
        torch.ones(1).__dlpack__(max_version=(1, 0), dl_device=(DLDeviceType.kDLHexagon, 0))


class Exporter:
    """An object that supports DLPack and nothing else."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def test_a_tensor_of_an_exporter_is_a_copy():
    x = torch.arange(4.0)
    y = torch.tensor(Exporter(x), dtype=torch.float64)
    x += 1
    assert (y.tolist(), y.dtype) == ([0, 1, 2, 3], torch.float64)
    assert torch.from_dlpack(Exporter(x[::3][:1])).stride() == (3,)


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_buffers_are_shared():
    buffer = bytearray(b"abcd")
    x = torch.frombuffer(buffer, dtype=torch.uint8, offset=1)
    buffer[1] = 1
    x[2] = 3
    assert x.tolist() == [1, ord("c"), 3]
    assert buffer == b"a\x01c\x03"
    numbers = (ctypes.c_float * 3)()
    y = torch.frombuffer(numbers, dtype=torch.float32)
    before = y + 0
    numbers[1] = 5
    assert (before[1], y[1]) == (0, 5)
    fixed = torch.frombuffer(b"ab", dtype=torch.uint8)
    fixed += 1
    assert fixed.tolist() == [98, 99]


def test_files_are_shared_if_they_are_to_be(tmp_path):
    path = tmp_path / "numbers"
    x = torch.from_file(path, shared=True, size=4)
    x.copy_(torch.arange(4.0))
    assert np.fromfile(path, np.float32).tolist() == [0, 1, 2, 3]
    assert x.is_shared()
    assert x.untyped_storage().filename == str(path)
    y = torch.from_file(path, size=2)
    y += 10
    assert (y.tolist(), x.tolist()) == ([10, 11], [0, 1, 2, 3])
    assert not y.is_shared()
    storage = torch.UntypedStorage.from_file(path, True, 16)
    storage[0:4] = 255
    assert x[0].isnan()
    with pytest.raises(RuntimeError, match=r"size <16> is smaller than the required mapping size <160>"):
        torch.from_file(path, size=40)
    with pytest.raises(RuntimeError, match=r"unable to open file <.*> in read-only mode: No such file or directory"):
        torch.from_file(tmp_path / "no", size=1)
