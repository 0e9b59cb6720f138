"""Tensors among Python's and NumPy's protocols."""

from __future__ import annotations

import copy
import pickle
import re
from operator import add

import jax.numpy as jnp
import numpy as np
import pytest

import weft
from weft import Tensor, nn, tensor
from weft.utils import dlpack
from weft.xla._random import get_rng_state, set_rng_state


def test_copies_of_a_leaf():
    x = weft.ones(2, requires_grad=True)
    x.tag = "mine"
    (x * 3).sum().backward()
    deep = copy.deepcopy(x)
    assert (deep.requires_grad, deep.tag, deep.grad.tolist()) == (True, "mine", [3.0, 3.0])
    twice = copy.deepcopy([x, x])
    assert twice[0] is twice[1]


def test_copy_shares_the_elements_and_deepcopy_does_not():
    x = weft.zeros(2)
    shared, own = copy.copy(x), copy.deepcopy(x)
    x.fill_(1)
    assert shared.tolist() == [1.0, 1.0]
    assert own.tolist() == [0.0, 0.0]


def test_deepcopy_refuses_results_of_operators():
    with pytest.raises(RuntimeError, match=r"^Only Tensors created explicitly by the user \(graph leaves\) support"):
        copy.deepcopy(weft.ones(2, requires_grad=True) * 2)


@pytest.mark.parametrize("dtype", [weft.float32, weft.bfloat16, weft.bool, weft.int64, weft.complex64])
def test_pickle(dtype):
    x = tensor([[1, 0], [1, 1]], dtype=dtype)
    back = pickle.loads(pickle.dumps(x))
    assert back.dtype is dtype
    assert back.tolist() == x.tolist()


def test_deepcopy_keeps_views_together():
    base = weft.zeros(2, 3)
    row, first, again = copy.deepcopy([base[1], base, base[1]])
    row.fill_(1)
    assert first.tolist() == [[0, 0, 0], [1, 1, 1]]
    assert again.tolist() == [1, 1, 1]
    assert base.tolist() == [[0, 0, 0], [0, 0, 0]]


def test_pickle_keeps_what_is_shared_and_what_it_is():
    parameter, buffer = nn.Parameter(weft.ones(2), requires_grad=False), nn.Buffer(weft.ones(1), persistent=False)
    parameter.tag = "mine"
    first, second, found = pickle.loads(pickle.dumps([parameter, parameter, buffer]))
    assert first is second
    assert (type(first), first.requires_grad, first.tag) == (nn.Parameter, False, "mine")
    assert (type(found), found.persistent) == (nn.Buffer, False)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_what_is_no_tensor(again):
    for x in (weft.float32, weft.device("cuda", 1), weft.Size([1, 2])):
        assert again(x) == x
        assert type(again(x)) is type(x)
    assert again(weft.bfloat16) is weft.bfloat16
    generator = weft.Generator().manual_seed(3)
    weft.rand(1, generator=generator)
    assert weft.rand(2, generator=again(generator)).tolist() == weft.rand(2, generator=generator).tolist()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_modules_and_optimizers(again):
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    optimizer = weft.optim.AdamW(net.parameters())
    net(weft.ones(1, 2)).sum().backward()
    optimizer.step()
    twin, stepper = again((net, optimizer))
    assert twin[0].weight is twin[1].weight
    assert twin[0].weight.tolist() == net[0].weight.tolist()
    assert stepper.param_groups[0]["params"][0] is twin[0].weight
    assert stepper.state[twin[0].weight]["exp_avg"].tolist() == optimizer.state[net[0].weight]["exp_avg"].tolist()


def test_pickle_keeps_requires_grad():
    assert pickle.loads(pickle.dumps(weft.ones(2, requires_grad=True))).requires_grad


def test_numpy_takes_tensors():
    x = tensor([1.0, 4.0])
    assert np.asarray(x).dtype == np.float32
    assert np.array_equal(np.concatenate([x, x]), [1, 4, 1, 4])
    assert np.array(x, dtype=np.int64).tolist() == [1, 4]
    found = np.sqrt(x)
    assert isinstance(found, Tensor)
    assert found.tolist() == [1.0, 2.0]


X = np.array([1.0, 4.0], np.float32)
NUMPY_FUNCTIONS = [
    (lambda x: np.sin(x), np.sin(X)),
    (lambda x: np.add(x, X), X + X),
    (lambda x: np.add(X, x), X + X),
    (lambda x: np.add(x, X.astype(float)), (X + X).astype(float)),
    (lambda x: np.dot(x, x), np.float32(17)),
    (lambda x: np.mean(x), X.mean()),
    (lambda x: np.where(x > 2, x, 0), np.array([0, 4], np.float32)),
    (lambda x: np.stack([x, x]), np.stack([X, X])),
    (lambda x: np.array([x, x]), np.stack([X, X])),
    (lambda x: np.linalg.norm(x), np.linalg.norm(X)),
    (lambda x: np.argsort(x), np.argsort(X)),
    (lambda x: np.isnan(x), np.array([0, 0], np.uint8)),
    (lambda x: np.greater(x, 2), np.array([0, 1], np.uint8)),
    (lambda x: X + x, X + X),
    (lambda x: x * X.astype(float), (X * X).astype(float)),
    (lambda x: np.arange(5)[x.long()], np.array([1, 4])),
    (lambda x: np.float32(x[1]), np.float32(4)),
]


@pytest.mark.parametrize(("function", "expected"), NUMPY_FUNCTIONS)
def test_numpy_functions_take_tensors(function, expected):
    found = function(weft.tensor(X))
    assert str(found.dtype).removeprefix("torch.") == str(expected.dtype)
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_numpy_functions_of_what_needs_a_gradient_are_refused():
    x = weft.ones(2, requires_grad=True)
    for function in (np.asarray, np.sin, lambda x: np.add(x, 1), lambda x: x.numpy()):
        with pytest.raises(
            RuntimeError, match=r"^Can't call numpy\(\) on Tensor that requires grad. Use tensor.detach"
        ):
            function(x)
    assert x.numpy(force=True).tolist() == [1, 1]


@pytest.mark.parametrize("mixed", [lambda x, y: x + y, lambda x, y: y + x])
def test_numpy_numbers_yield_to_tensors(mixed):
    found = mixed(tensor([1.0, 2.0]), np.float64(1))
    assert isinstance(found, Tensor)
    assert found.dtype is weft.float32
    assert found.tolist() == [2.0, 3.0]


def test_contains():
    x = tensor([1.0, 2.0])
    assert 1 in x
    assert tensor(2) in x
    assert 3 not in x
    with pytest.raises(
        RuntimeError, match=r"^Tensor.__contains__ only supports Tensor or scalar, but you passed in a <"
    ):
        x.__contains__("a")


def test_shapes_are_tuples():
    shape = weft.zeros(2, 3).shape
    assert shape == (2, 3) == weft.Size([2, 3])
    assert shape != [2, 3]
    assert hash(shape) == hash((2, 3))
    assert repr(add(shape[1:], (1,))) == "torch.Size([3, 1])"
    assert repr(add((1,), shape)) == "torch.Size([1, 2, 3])"
    assert repr(shape[:1] * 2) == "torch.Size([2, 2])"
    assert shape.numel() == 6


def test_devices_are_told():
    x = weft.zeros(1)
    assert x.is_cpu
    assert not x.is_cuda
    assert x.get_device() == -1


# --- from memory ---


def test_from_numpy_refuses_what_it_cannot_hold():
    for array in (np.array(["a"]), np.array([None]), np.array([1], "M8[s]")):
        name = array.dtype.type.__name__
        with pytest.raises(
            TypeError, match=f"^can't convert np.ndarray of type numpy.{name}. The only supported types a"
        ):
            weft.from_numpy(array)
    with pytest.raises(
        ValueError, match=r"^given numpy array has byte order different from the native byte order\. Conv"
    ):
        weft.from_numpy(np.arange(3, dtype=">i4"))
    with pytest.raises(ValueError, match=r"^At least one stride in the given numpy array is negative"):
        weft.from_numpy(np.arange(3)[::-1])


@pytest.mark.parametrize("size", [3, 100_000])
def test_a_tensor_is_a_copy(size):
    array = np.zeros(size)
    made = weft.tensor(array)
    array[0] = 1
    assert made[0].item() == 0


def test_numbers_of_numpy_and_arrays_of_jax():
    for number in (np.float64(1.5), np.int16(2), np.bool_(True), np.complex64(1j), np.array(2.5)):
        for make in (weft.tensor, weft.as_tensor, weft.asarray):
            made = make(number)
            assert (made.dtype.numpy, made.shape, made.item()) == (number.dtype, (), number)
    array = jnp.arange(3)
    for make in (weft.tensor, weft.asarray, weft.from_dlpack):
        assert make(array).tolist() == [0, 1, 2]
    assert jnp.asarray(weft.arange(3)).tolist() == [0, 1, 2]


BUFFERS = [
    (
        {"count": 9},
        r"requested buffer length (9 * 2 bytes) after offset (0 bytes) must not be greater than actual buff",
    ),
    ({"offset": 3}, "buffer length (5 bytes) after offset (3 bytes) must be a multiple of element size (2)"),
    ({"offset": 8}, "offset (8 bytes) must be non-negative and no greater than buffer length (8 bytes) minus 1"),
    ({"offset": -1}, "offset (-1 bytes) must be non-negative and no greater than buffer length (8 bytes) minus 1"),
    ({"count": 0}, "both buffer length (8) and count (0) must not be 0"),
]


@pytest.mark.parametrize(("options", "message"), BUFFERS)
def test_parts_of_buffers_are_checked(options, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        weft.frombuffer(bytearray(8), dtype=weft.int16, **options)


def test_frombuffer():
    content = bytearray(b"\1\0\2\0\3\0")
    assert weft.frombuffer(content, dtype=weft.int16).tolist() == [1, 2, 3]
    assert weft.frombuffer(content, dtype=weft.int16, offset=2, count=1).tolist() == [2]
    assert weft.frombuffer(np.ones(2), dtype=weft.float64, requires_grad=True).requires_grad
    with pytest.raises(ValueError, match=r"^object does not implement Python buffer protocol\.$"):
        weft.frombuffer([1], dtype=weft.int16)
    with pytest.raises(ValueError, match=r"^both buffer length \(0\) and count \(-1\) must not be 0$"):
        weft.frombuffer(b"", dtype=weft.int16)


def test_asarray_shares_or_copies():
    x = weft.ones(2)
    assert weft.asarray(x) is x
    assert weft.asarray(x, copy=True) is not x
    assert weft.asarray(x, dtype=weft.float64).dtype is weft.float64
    assert weft.asarray([1, 2.5]).tolist() == [1, 2.5]
    assert weft.asarray(memoryview(np.ones(2)), dtype=weft.float64).tolist() == [1, 1]
    assert weft.asarray(bytearray(b"ab"), dtype=weft.uint8).tolist() == [97, 98]
    for given, options, message in (
        ([1], {}, "can't alias arbitrary sequence into a tensor."),
        (x, {"dtype": weft.float64}, "can't alias tensor with dtype 'Float' into dtype 'Double'."),
        (np.ones(1), {"dtype": weft.float32}, "can't alias tensor with dtype 'Double' into dtype 'Float'."),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            weft.asarray(given, copy=False, **options)


def test_asarray_and_gradients():
    x = weft.ones(2, requires_grad=True)
    made = {
        "same": weft.asarray(x),
        "copy": weft.asarray(x, copy=True),
        "cast": weft.asarray(x, dtype=weft.float64),
        "off": weft.asarray(x, requires_grad=False),
        "on": weft.asarray(x * 2, requires_grad=True),
        "numbers": weft.asarray([1.0], requires_grad=True),
    }
    assert {name: (y.requires_grad, y.is_leaf) for name, y in made.items()} == {
        "same": (True, True),
        "copy": (True, False),
        "cast": (False, True),
        "off": (False, True),
        "on": (True, True),
        "numbers": (True, True),
    }
    with pytest.raises(RuntimeError, match=r"^Only Tensors of floating point and complex dtype can require gradients"):
        weft.asarray([1], requires_grad=True)


def test_dlpack_capsules():
    capsule = weft.to_dlpack(weft.arange(3))
    assert dlpack.from_dlpack(capsule).tolist() == [0, 1, 2]
    for used in (capsule, [1]):
        with pytest.raises(
            RuntimeError, match=r"^from_dlpack received an invalid capsule\. Note that DLTensor capsules c"
        ):
            dlpack.from_dlpack(used)


@pytest.mark.parametrize(
    ("seed", "initial"), [(2**63, 2**63), (-1, 2**64 - 1), (2**64 - 1, 2**64 - 1), (-(2**63), 2**63), (5, 5)]
)
def test_all_64_bits_of_a_seed_count(seed, initial):
    generator = weft.Generator().manual_seed(seed)
    assert generator.initial_seed() == initial
    state, first = generator.get_state(), weft.rand(3, generator=generator).tolist()
    assert first != weft.rand(3, generator=weft.Generator().manual_seed(initial % 2**63 ^ 1)).tolist()
    assert first == weft.rand(3, generator=weft.Generator().manual_seed(initial)).tolist()
    generator.set_state(state)
    assert (generator.initial_seed(), weft.rand(3, generator=generator).tolist()) == (initial, first)
    assert pickle.loads(pickle.dumps(generator)).initial_seed() == initial


def test_a_seeds_highest_bit_counts_for_every_kind_of_draw():
    def draws(seed):
        weft.manual_seed(seed)
        compiled = weft.compile(lambda x: x + weft.rand(2))
        rows = weft.vmap(lambda x: x + weft.rand(2), randomness="different")(weft.zeros(2))
        sobol = weft.quasirandom.SobolEngine(1, scramble=True).draw(1)
        numbers = [compiled(weft.zeros(2)).tolist() for _ in range(3)]
        return weft.randperm(20).tolist(), rows.tolist(), sobol.item(), numbers, get_rng_state() >> 64

    low, high = draws(0), draws(2**63)
    assert all(a != b for a, b in zip(low[:-1], high[:-1], strict=True))
    assert low[-1] == high[-1] == 6
    assert (weft.initial_seed(), get_rng_state() % 2**64) == (2**63, 2**63)
    set_rng_state(get_rng_state())
    assert draws(2**63) == high
