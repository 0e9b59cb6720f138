"""Owners that programs write: calls on their tensors, gradients, texts, copies and files."""

from __future__ import annotations

import copy
import io
import pickle
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.owners import (
    Encoding,
    Stored,
    TensorOwner,
    apply,
    composed,
    encoding_of,
    on_whole,
    operand,
    rule,
    set_restorer,
    with_owner,
    wrap,
)


def through_file(thing, **options):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **options)


COPIES = {
    "file": through_file,
    "trusted file": lambda x: through_file([x, Fraction(1, 2)], weights_only=False)[0],
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "deepcopy": copy.deepcopy,
}


# --- tensors whose elements are an array ---


class Logging(TensorOwner):
    """Notes the calls on its tensors."""

    def __init__(self):
        self.calls = []

    def apply(self, call, inputs):
        self.calls.append(call.op.name)
        results = apply(call, tuple([with_owner(x, None) for x in inputs]))
        return tuple([with_owner(x, self) for x in results])

    def describe(self):
        return "logged calls"

    def save(self, value):
        return Stored("logged", {}, {"elements": wrap(with_owner(value, None)).detach()})


class Writable(Logging):
    """Lets plain tensors be written to its own, and the reverse."""

    def to_owner(self, value, owner):
        return with_owner(value, owner)


LOG, WRITABLE = Logging(), Writable()
set_restorer("logged", lambda facts, parts: logged(parts["elements"]))


def logged(x, owner=LOG):
    return wrap(with_owner(operand(x), owner))


def is_owned(x, owner=LOG):
    return operand(x).aval.owner is owner


@pytest.fixture(autouse=True)
def nothing_is_logged():
    LOG.calls.clear()


def test_calls_go_to_the_owner():
    x = logged(torch.tensor([1.0, 2.0]))
    y = (x * 2 + torch.ones(2)).sum()
    assert LOG.calls == ["mul", "add", "sum"]
    assert is_owned(y)
    assert y.item() == 8
    assert x.shape == (2,)
    assert repr(x) == "tensor([1., 2.])"
    assert repr(operand(x).aval) == "float32[2] of logged calls"
    assert type(torch.ones_like(x)) is torch.Tensor


def test_gradients_flow_through_its_calls():
    x = logged(torch.tensor([1.0, 2.0])).requires_grad_()
    plain = torch.tensor([3.0, 4.0], requires_grad=True)
    (x * plain).sum().backward()
    assert x.grad.tolist() == [3, 4]
    assert plain.grad.tolist() == [1, 2]
    (grad,) = torch.autograd.grad(x.exp(), x, torch.ones(2))
    np.testing.assert_allclose(grad.tolist(), np.exp([1, 2]), rtol=1e-6)


def test_a_moved_tensor_keeps_its_owner():
    x = logged(torch.ones(2))
    assert x.to("cpu") is x
    there = x.to("meta")
    assert (there.device.type, is_owned(there)) == ("meta", True)
    assert is_owned(x.double())
    assert LOG.calls == ["to_dtype"]


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_keep_an_owner(copied):
    x = copied(logged(torch.tensor([1.0, 2.0])))
    assert is_owned(x)
    assert x.tolist() == [1, 2]


def test_what_an_owner_does_not_say_is_refused():
    x = logged(torch.ones(2))
    with pytest.raises(NotImplementedError, match=r"^copy_\(\) has no rule for a tensor of logged calls; make a plain"):
        torch.zeros(2).copy_(x)
    with pytest.raises(NotImplementedError, match=r"^Parameter\(\) has no rule for a tensor of logged calls"):
        nn.Parameter(x)
    with pytest.raises(RuntimeError, match="unknown layout 'nobody'"):
        through_file(wrap(with_owner(operand(torch.ones(2)), Unknown())))


class Unknown(Logging):
    def save(self, value):
        return Stored("nobody", {}, {})


def test_writes_ask_the_owner():
    x, plain = logged(torch.ones(4), WRITABLE), torch.zeros(4)
    plain.copy_(x)
    assert is_owned(plain, None)
    x[:2] = torch.zeros(2)
    x.add_(1)
    assert is_owned(x, WRITABLE)
    assert (plain.tolist(), x.tolist()) == ([1] * 4, [1, 1, 2, 2])


# --- tensors that consist of others ---


@dataclass(eq=False, repr=False)
class Difference(Encoding):
    """A tensor that is stored as its difference from a base, which several tensors share."""

    layout = torch.layout("difference")
    kind = "Difference"

    base: torch.Tensor

    def whole_array(self):
        return self.base + self.values

    def gradient(self, values):
        return values  # not a difference

    def derived(self, op, args, kwargs):
        return on_whole(op.name, *args, **kwargs)


@rule(Difference, "mul")
def _mul(input, other):
    if not isinstance(encoding_of(input), Difference) or other.ndim:
        return NotImplemented
    encoding = encoding_of(input)
    return composed(Difference(encoding.size, encoding.values * other, encoding.base * other))


def difference(elements, base):
    values = torch.tensor(elements) - base
    return composed(Difference(values.shape, values, base))


BASE = torch.tensor([10.0, 20.0])


def test_an_encoding_has_rules_and_else_gives_whole_arrays():
    x = difference([11.0, 22.0], BASE)
    assert repr(x) == "tensor([11., 22.], size=(2,), layout=torch.difference)"
    doubled = x * 2
    assert doubled.layout is Difference.layout
    assert encoding_of(doubled).values.tolist() == [2, 4]
    assert (x + x).tolist() == [22, 44]
    assert torch.stack([x, doubled]).tolist() == [[11, 22], [22, 44]]
    with pytest.raises(TypeError, match=r"has no single array; use x\.to_dense"):
        x.tolist()
    assert x.to_dense().tolist() == [11, 22]


def test_gradients_of_an_encoding_are_those_of_its_values():
    x = difference([11.0, 22.0], BASE).requires_grad_()
    (x * x).sum().backward()
    assert x.grad.tolist() == [22, 44]
    assert BASE.grad is None


def test_its_parts_are_moved():
    assert {part.device.type for part in encoding_of(difference([1.0], BASE).to("meta")).parts().values()} == {"meta"}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_of_an_encoding(copied):
    x = copied(difference([11.0, 22.0], BASE).requires_grad_())
    assert x.layout is Difference.layout
    assert x.requires_grad
    assert encoding_of(x).values.tolist() == [1, 2]
