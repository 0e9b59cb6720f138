"""Arrays of other libraries in place of tensors: what is said, and that what is advised works."""

from __future__ import annotations

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft
from weft import nn
from weft.nn import functional as F


class Buffer:
    """An array of some other library."""

    def __dlpack__(self, **options):
        return np.ones(2).__dlpack__(**options)

    def __dlpack_device__(self):
        return np.ones(2).__dlpack_device__()


class Derived(weft.Tensor):
    pass


class TensorBase(Buffer):
    """A tensor of PyTorch's, as this package sees it: the class says that functions are overridden, by calling them."""

    __module__ = "torch._C"
    dtype, requires_grad = "torch.float32", False

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

    def __add__(self, other):
        return NotImplemented


class OfPyTorch(TensorBase):
    __module__, __qualname__ = "torch", "Tensor"


ARRAYS = [
    (OfPyTorch(), "torch.Tensor; make a tensor of it with weft.from_dlpack(x)", weft.from_dlpack),
    (np.ones(2), "numpy.ndarray; make a tensor of it with weft.as_tensor(x)", weft.as_tensor),
    (jnp.ones(2), "jax.Array; make a tensor of it with weft.from_dlpack(x)", weft.from_dlpack),
    (Buffer(), "tests._tensor.test_foreign.Buffer; make a tensor of it with weft.from_dlpack(x)", weft.from_dlpack),
]
CALLS = [
    (lambda x: weft.relu(x), "relu(): argument 'input' must be Tensor, not {}"),
    (lambda x: weft.cat([weft.ones(2), x]), "expected Tensor as element 1 in argument 0, but got {}"),
    (lambda x: F.mse_loss(weft.ones(2), x), "mse_loss(): argument 'target' must be Tensor, not {}"),
    (lambda x: weft.ones(2).add(x), "add(): argument 'other' must be Tensor, not {}"),
    (lambda x: weft.nn.Parameter(x), "Parameter(): argument 'data' must be Tensor, not {}"),
    (lambda x: weft.relu(weft.ones(2), out=x), "argument 'out' must be Tensor, not {}"),
    (
        lambda x: setattr(weft.ones(2), "grad", x),
        "assigned grad expected to be a Tensor or None but got grad of type {}",
    ),
    (lambda x: weft.autograd.grad([x], weft.ones(2)), "expected Tensors or a sequence of Tensors, got {}"),
]


@pytest.mark.parametrize(("array", "said", "make"), ARRAYS)
def test_an_array_of_another_library_is_named_with_the_way_out(array, said, make):
    for call, text in CALLS:
        with pytest.raises(TypeError) as caught:
            call(array)
        assert str(caught.value) == text.format(said)
    assert weft.relu(make(array)).tolist() == [1, 1]


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.matmul, operator.mod]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.ge]
INPLACE = [operator.iadd, operator.imul, operator.ipow]


@pytest.mark.parametrize("array", [OfPyTorch(), jnp.ones(2)])
def test_operators_with_an_array_of_a_library_that_refuses_tensors(array):
    """Where Python would say that the types are not supported, or that two objects are not the same."""
    kind = "jax.Array" if isinstance(array, jax.Array) else "torch.Tensor"
    for operate in OPERATORS + COMPARISONS + INPLACE:
        with pytest.raises(TypeError, match=rf"must be Tensor, not {kind}; make a tensor of it with weft.from_dlpack"):
            operate(weft.ones(2), array)
    for operate in [operator.add, operator.eq]:
        with pytest.raises(TypeError, match=rf"must be Tensor, not {kind}; make a tensor of it with weft.from_dlpack"):
            operate(array, weft.ones(2))


def test_an_operator_asks_the_class_of_any_other_object():
    class Other:
        def __radd__(self, other):
            return "its own"

    assert weft.ones(2) + Other() == "its own"
    assert (weft.ones(2) == Other()) is False


PLACES = [
    lambda x: nn.Linear(2, 2)(x),
    lambda x: nn.LSTM(2, 2)(x),
    lambda x: nn.GRUCell(2, 2)(x),
    lambda x: nn.Module().register_buffer("state", x),
    lambda x: nn.Module().register_parameter("weight", x),
    lambda x: setattr(nn.Linear(2, 2), "weight", x),
    lambda x: nn.Linear(2, 1).load_state_dict({"weight": x, "bias": weft.ones(1)}),
    lambda x: weft.optim.SGD([x], lr=0.1),
    lambda x: nn.utils.rnn.pad_sequence([x, x]),
    lambda x: weft.utils.data.default_collate([x, x]),
    lambda x: weft.distributions.Normal(x, 1.0),
    lambda x: weft.distributions.Normal(0.0, 1.0).log_prob(x),
    lambda x: weft.vmap(weft.relu)(x),
    lambda x: weft.func.grad(weft.sum)(x),
    lambda x: weft._foreach_mul([x], 2.0),
    lambda x: weft.tensor([x, x]),
    lambda x: weft.ones(2).set_(x),
    lambda x: x in weft.ones(2),
    lambda x: weft.from_numpy(x),
    lambda x: weft.Tensor.add(weft.ones(2), x),
    lambda x: weft.utils.data.TensorDataset(weft.ones(2), x),
    lambda x: weft.optim.SGD([weft.ones(2, requires_grad=True)], lr=x),
    lambda x: nn.utils.clip_grad_norm_([x], 1.0),
    lambda x: weft.testing.assert_close(weft.ones(2), x),
    lambda x: weft.set_rng_state(x),
]


@pytest.mark.parametrize("array", [OfPyTorch(), jnp.ones(2)])
@pytest.mark.parametrize("call", PLACES)
def test_wherever_it_is_put(call, array):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=r"weft.from_dlpack\(x\)"):
        call(array)


def test_a_parameter_of_pytorch_is_converted_without_its_graph():
    class Parameter(OfPyTorch):
        requires_grad = True

    with pytest.raises(TypeError, match=r"with weft.from_dlpack\(x.detach\(\)\)$"):
        weft.relu(Parameter())


@pytest.mark.parametrize("tensor", [weft.ones(2), nn.Parameter(weft.ones(2)), weft.ones(2).as_subclass(Derived)])
def test_functions_of_pytorch_refuse_tensors(tensor):
    """PyTorch asks the class of an argument that it does not know; it must not be asked to do the same again."""

    def relu(x):
        return type(x).__torch_function__(relu, (type(x),), (x,))

    relu.__module__ = "torch.nn.functional"
    text = rf"^relu\(\) of PyTorch does not take a tensor of Weft \(.*{type(tensor).__name__}\); .*torch.from_dlpack"
    with pytest.raises(TypeError, match=text):
        relu(tensor)


def test_a_foreign_array_is_not_assigned():
    x = weft.ones(2)
    with pytest.raises(TypeError, match=r"^can't assign a jax.Array to a torch.FloatTensor; make a tensor of it"):
        x[0] = jnp.ones(2)[0]
    assert x.tolist() == [1, 1]


def test_what_is_no_array_is_named_alone():
    with pytest.raises(TypeError, match=r"^relu\(\): argument 'input' must be Tensor, not str$"):
        weft.relu("a")


def test_under_a_transformation_of_jax_the_way_is_another():
    with pytest.raises(
        TypeError, match=r"not jax.Array; under a jax .* call the function that weft.to_jax\(fn\) makes"
    ):
        jax.eval_shape(weft.relu, jnp.ones(2))
    assert jax.eval_shape(weft.to_jax(weft.relu), jnp.ones(2)).shape == (2,)


class Type:
    """An element type of PyTorch's, as this package sees it."""

    def __repr__(self):
        return "torch.float32"


Type.__module__, Type.__qualname__ = "torch", "dtype"
TYPED = [
    lambda x: weft.zeros(2, dtype=x),
    lambda x: weft.tensor([1.0], dtype=x),
    lambda x: weft.ones(2).to(x),
    lambda x: nn.Linear(2, 2).to(dtype=x),
    lambda x: weft.set_default_dtype(x),
    lambda x: weft.frombuffer(b"abcd", dtype=x),
    lambda x: weft.autocast("cpu", dtype=x),
]


@pytest.mark.parametrize("call", TYPED)
def test_an_element_type_of_pytorch(call):
    with pytest.raises(TypeError, match=r"; it is PyTorch's: use weft.float32$"):
        call(Type())


def test_a_module_of_pytorch_does_not_become_an_attribute_that_nobody_trains():
    theirs = type("Module", (), {"__module__": "torch.nn.modules.module"})
    ours = nn.Linear(2, 2)
    with pytest.raises(TypeError, match=r"a module of weft\.nn, and load the state"):
        ours.child = type("Net", (theirs,), {})()
    assert not hasattr(ours, "child")
    ours.array = jnp.ones(2)  # which a module of PyTorch does not register either


@pytest.mark.parametrize("given", [1, "channels_last"])
def test_what_is_no_memory_format(given):
    for call in (weft.ones(2).contiguous, weft.ones(2).clone, weft.ones(2).is_contiguous):
        with pytest.raises(TypeError, match=r"^argument 'memory_format' must be torch.memory_format, not (int|str)$"):
            call(memory_format=given)
