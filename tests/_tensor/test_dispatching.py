"""Classes with `__torch_dispatch__`: a tensor without elements that logs, a quantized weight, and one with elements."""

from __future__ import annotations

import copy

import pytest

import weft
from weft import nn
from weft.nn import functional as F
from weft.utils import _pytree
from weft.utils._python_dispatch import (
    is_traceable_wrapper_subclass,
    return_and_correct_aliasing,
    transform_subclass,
)

aten = weft.ops.aten


class Logged(weft.Tensor):
    """Holds a tensor, computes on it, and keeps the names of operators."""

    log: list[str]
    __torch_function__ = weft._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, elem, names):
        result = weft.Tensor._make_wrapper_subclass(cls, elem.size(), dtype=elem.dtype, device=elem.device)
        result.elem, result.log = elem, names
        return result

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        names = next(x.log for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, Logged))
        names.append(str(func).removeprefix("aten.").removesuffix(".default"))
        args, kwargs = _pytree.tree_map(lambda x: x.elem if isinstance(x, Logged) else x, (args, kwargs or {}))
        result = func(*args, **kwargs)
        return _pytree.tree_map(lambda x: cls(x, names) if isinstance(x, weft.Tensor) else x, result)


ELEMENTS = weft.arange(6.0).view(2, 3)


def test_a_wrapper_has_a_size_a_type_and_a_device():
    x = Logged(ELEMENTS.double(), [])
    assert (x.shape, x.dtype, x.device, x.ndim, x.numel()) == ((2, 3), weft.float64, weft.device("cpu"), 2, 6)
    assert x.is_cpu
    assert not x.is_meta
    assert x.log == []


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (lambda x: x + 1, "add.Tensor"),
        (lambda x: weft.ones(2, 3) + x, "add.Tensor"),
        (lambda x: F.linear(x, weft.ones(4, 3)), "t mm"),
        (lambda x: weft.cat([x, x]), "cat"),
        (lambda x: F.softmax(x, -1), "_softmax"),
        (lambda x: x[0, 1:], "select.int slice.Tensor"),
        (lambda x: x.to(weft.int32), "_to_copy"),
        (lambda x: x.view(3, 2).t(), "view t"),
        (lambda x: x.max(1).values, "max.dim"),
        (lambda x: x.detach().clone(), "detach clone"),
        (lambda x: weft.zeros_like(x), "zeros_like"),
        (lambda x: x.std(), "std.correction"),
        (lambda x: weft.where(x > 1, x, x), "gt.Scalar where.self"),
    ],
)
def test_operators_are_computed_by_the_class(run, names):
    x = Logged(ELEMENTS, [])
    y = run(x)
    assert type(y) is Logged
    assert " ".join(x.log).removeprefix("t ") == names.removeprefix("t ")
    assert weft.equal(y.elem, run(ELEMENTS))
    assert y.shape == y.elem.shape


def test_elements_are_read_by_an_operator():
    x = Logged(ELEMENTS, [])
    assert x.sum().item() == float(x.sum()) == 15
    assert bool((x > 4).any())
    assert x.log.count("_local_scalar_dense") == 3


def test_a_call_by_name_asks_the_class():
    x = Logged(ELEMENTS, [])
    assert type(aten.mul.Tensor(x, 2)) is Logged
    assert x.log == ["mul.Tensor"]


def test_a_tensor_without_elements_needs_a_class_that_computes():
    with pytest.raises(TypeError, match=r"expected a class that defines __torch_dispatch__"):
        weft.Tensor._make_wrapper_subclass(nn.Parameter, (2,))


class Quantized(weft.Tensor):
    """A matrix of whole numbers, with a scale for each row."""

    @staticmethod
    def __new__(cls, whole, scale):
        return weft.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=scale.dtype, device=whole.device)

    def __init__(self, whole, scale):
        self.whole, self.scale = whole, scale

    @classmethod
    def of(cls, matrix):
        scale = matrix.abs().amax(1, keepdim=True) / 127
        return cls((matrix / scale).round().to(weft.int8), scale)

    def dequantize(self):
        return self.whole * self.scale

    def __tensor_flatten__(self):
        return ["whole", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, tensors, context, size, stride):
        return cls(tensors["whole"], tensors["scale"])

    def __repr__(self):
        return f"Quantized({tuple(self.shape)})"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear:
            return F.linear(args[0], args[1].dequantize(), *args[2:])
        with weft._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        if func in {aten.detach.default, aten.clone.default}:
            result = transform_subclass(args[0], lambda _, x: func(x))
            return return_and_correct_aliasing(func, args, kwargs, result)
        if func is aten.mm.default:
            return args[0] @ args[1].dequantize()
        raise NotImplementedError(f"{func} of Quantized")


def test_a_weight_that_computes_stays_what_it_is():
    linear = nn.Linear(3, 4)
    matrix = linear.weight.detach()
    linear.weight = nn.Parameter(Quantized.of(matrix), requires_grad=False)
    assert type(linear.weight) is Quantized
    assert isinstance(linear.weight, nn.Parameter)
    assert not isinstance(Quantized.of(matrix), nn.Parameter)
    assert is_traceable_wrapper_subclass(linear.weight)
    assert [name for name, _ in linear.named_parameters()] == ["weight", "bias"]
    x = weft.randn(2, 3, requires_grad=True)
    y = linear(x)
    assert weft.allclose(y, x @ matrix.t() + linear.bias, atol=0.05)
    y.sum().backward()
    assert weft.allclose(x.grad, matrix.sum(0).expand(2, 3), atol=0.05)
    assert type(linear.state_dict()["weight"]) is Quantized
    assert repr(linear.to("cpu").weight) == "Quantized((4, 3))"


def test_copies_of_modules_have_copies_of_what_is_held():
    linear = nn.Linear(3, 4, bias=False)
    linear.weight = nn.Parameter(Quantized.of(linear.weight.detach()), requires_grad=False)
    other = copy.deepcopy(linear)
    assert isinstance(other.weight, nn.Parameter)
    assert type(other.weight) is Quantized
    assert other.weight.whole is not linear.weight.whole
    assert weft.equal(other.weight.whole, linear.weight.whole)


def test_an_operator_that_the_class_refuses_names_itself():
    with pytest.raises(NotImplementedError, match=r"^aten\.mul\.Tensor of Quantized$"):
        Quantized.of(weft.ones(2, 2)) * 2


def test_a_table_of_operators_serves_functions_that_consist_of_them():
    q = Quantized.of(weft.eye(3))
    assert weft.allclose(weft.ones(2, 3) @ q, weft.ones(2, 3))


class Counted(weft.Tensor):
    """Has elements of its own."""

    count = 0

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        cls.count += 1
        return super().__torch_dispatch__(func, types, args, kwargs)


def test_a_class_with_elements_passes_operators_on():
    x = weft.ones(2).as_subclass(Counted)
    y = x * 2 + 1
    assert (type(y), y.tolist(), Counted.count) == (weft.Tensor, [3, 3], 1)


def test_classes_are_asked_until_one_answers():
    class Silent(Counted):
        @classmethod
        def __torch_dispatch__(cls, func, types, args, kwargs=None):
            return NotImplemented

    x = weft.ones(2).as_subclass(Silent)
    with pytest.raises(TypeError, match=r"'torch\.ops\.aten\.add\.Tensor'; all __torch_dispatch__ handlers returned"):
        x + 1


def test_arguments_that_are_written_to_are_what_is_returned():
    x = weft.ones(2)
    assert return_and_correct_aliasing(aten.add_.Tensor, (x, 1), {}, weft.ones(2)) is x
    out = weft.ones(2)
    assert return_and_correct_aliasing(aten.add.Tensor, (x, 1), {}, out) is out
