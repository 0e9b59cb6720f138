"""Writes by the extension's twins leave what Python leaves: values, places in the graph, versions, and stale views."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import Any

import pytest

import weft as torch
from tests._tensor.test_view_twins import operators, source
from weft._base.state import NO_CONTEXT, using
from weft._lazy.native import native
from weft._lazy.value import Value

pytestmark = pytest.mark.skipif(native is None, reason="the extension is not built, or turned off")


@contextmanager
def written_in_python():
    """A block in which every write goes to the functions in Python: none has the context of a common one."""
    native.bind(NO_CONTEXT=object())
    try:
        yield
    finally:
        native.bind(NO_CONTEXT=NO_CONTEXT)


ROW = torch.arange(4.0)
WHOLE = torch.arange(24.0).reshape(2, 3, 4) + 0.5
AT, MASK, BIG_MASK = torch.tensor([1, 0]), torch.tensor([True, False]), torch.arange(24).reshape(2, 3, 4) % 3 == 0
BIG_MASK.tolist()


def iadd(x):
    x += 1


WRITES = {
    "add": lambda x: x.add_(1),
    "add of a tensor": lambda x: x.add_(WHOLE),
    "add of what broadcasts": lambda x: x.add_(ROW),
    "mul": lambda x: x.mul_(0.5),
    "zero": lambda x: x.zero_(),
    "fill": lambda x: x.fill_(3),
    "copy": lambda x: x.copy_(WHOLE),
    "copy of another type": lambda x: x.copy_(WHOLE.long()),
    "iadd": iadd,
    "clamp": lambda x: x.clamp_(0.1, 5),
    "twice": lambda x: x.mul_(0.9).add_(WHOLE, alpha=0.1),
    "transposed": lambda x: x.transpose_(0, 1),
    "out": lambda x: torch.add(WHOLE, 1, out=x),
    "a row": lambda x: x.__setitem__((1, 2), ROW),
    "a number": lambda x: x.__setitem__(1, 2.0),
    "an int": lambda x: x.__setitem__((0, -1), 3),
    "a bool": lambda x: x.__setitem__((0, -1), True),
    "a large int": lambda x: x.__setitem__(0, 2**60),
    "a complex number": lambda x: x.__setitem__(0, 2 + 0j),
    "nan": lambda x: x.__setitem__(0, float("nan")),
    "a slice": lambda x: x.__setitem__((slice(None), slice(1, 3)), 0),
    "steps": lambda x: x.__setitem__((..., slice(None, None, 2)), 0.5),
    "all": lambda x: x.__setitem__(..., 7.0),
    "all of a tensor": lambda x: x.__setitem__(slice(None), WHOLE),
    "an item": lambda x: x.__setitem__((1, 2, 3), 2.0),
    "a new dim": lambda x: x.__setitem__((0, None), 2.0),
    "its own part": lambda x: x.__setitem__(0, x[1]),
    "a mask": lambda x: x.__setitem__(WHOLE > 5, 0.0),
    "a mask that is in memory": lambda x: x.__setitem__(BIG_MASK, 2),
    "a mask of a tensor": lambda x: x.__setitem__(BIG_MASK, ROW[0]),
    "a mask of one dim": lambda x: x.__setitem__(MASK, -1.0),
    "a mask of several values": lambda x: x.__setitem__(MASK, ROW),
    "index tensors": lambda x: x.__setitem__((AT, AT), 4.0),
    "an index tensor of a row": lambda x: x.__setitem__((slice(None), AT), ROW),
    "repeated places": lambda x: x.__setitem__((slice(None), AT * 0), WHOLE[0, 0]),
    "values of another type": lambda x: x.__setitem__(AT, 3),
    "a tensor of another type": lambda x: x.__setitem__(AT, ROW.long()),
    "values with a dim of one": lambda x: x.__setitem__(AT, WHOLE[:1, 0]),
    "an index tensor in a part": lambda x: x.__setitem__((0, AT), 5.0),
    "an index tensor through a view": lambda x: x[1].__setitem__(AT, 5.0),
    "what does not fit": lambda x: x.__setitem__((slice(None), AT), WHOLE),
    "through a view": lambda x: x[0].add_(1),
    "through two views": lambda x: x.transpose(0, 1)[1, 1:].mul_(2),
    "through expand": lambda x: x[:, :1].expand(2, 3, 4).zero_(),
    "of a view's part": lambda x: x[0].__setitem__(1, 5.0),
    "data": lambda x: x.data.add_(1),
    "detached": lambda x: x.detach()[0].add_(1),
}


def state_of(tensor):
    facts, value = tensor._facts, tensor._value
    stale = value is None
    value = tensor._read()
    return [stale, value.aval, type(value.role), operators(value), facts.writes, facts.overwritten > 0, tensor._version]


def run(write, kind, grad):
    """What a write leaves of a tensor, of a view of it, and of the tensor that owns the elements."""
    x = source(kind)
    seen = x[1]
    owner: Any = x if x._alias is None else x._alias.base
    try:
        with using(grad=grad):
            result = write(x)
    except (RuntimeError, IndexError) as error:
        return str(error)
    states = [state_of(tensor) for tensor in (seen, x, owner)]
    return [result is x or result is None, *states, x.tolist(), seen.tolist(), owner.tolist()]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("kind", ["pending", "in memory", "interior", "leaf", "parameter", "view", "detached"])
@pytest.mark.parametrize("name", WRITES)
def test_a_twin_leaves_the_same(name, kind, grad):
    run(WRITES[name], kind, grad)  # its signatures are known from now on
    fast = run(WRITES[name], kind, grad)
    with written_in_python():
        slow = run(WRITES[name], kind, grad)
    assert repr(fast) == repr(slow)


@pytest.mark.parametrize("kind", ["pending", "interior", "view"])
@pytest.mark.parametrize("name", ["add", "mul", "a row", "a number", "through two views", "add of a tensor"])
def test_gradients_flow_through_writes(name, kind):
    def gradient():
        leaf: Any = torch.arange(24.0).reshape(2, 3, 4).requires_grad_()
        x = leaf.exp() if kind != "view" else (leaf * 2).view(-1).view(2, 3, 4)
        WRITES[name](x)
        (x * x).sum().backward()
        return leaf.grad.tolist()

    gradient()
    fast = gradient()
    with written_in_python():
        assert gradient() == fast


def test_a_function_that_is_transformed_writes_to_no_older_tensor():
    x = torch.zeros(3)
    x.add_(1)
    with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
        torch.func.grad(lambda y: x.add_(y).sum())(torch.ones(3))
    with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
        torch.func.grad(lambda y: x.__setitem__(0, 1.0) or y.sum())(torch.ones(3))


def test_numbers_that_do_not_fit_are_refused():
    x = torch.zeros(3, dtype=torch.int8)
    x[0] = 5
    for bad in (128, -129, 2**70, 1j):
        with pytest.raises((RuntimeError, OverflowError)):
            x[0] = bad
    y = torch.zeros(3, dtype=torch.float16)
    y[0] = 1.0
    with pytest.raises(RuntimeError):
        y[0] = 1e6
    y[0] = float("inf")
    unsigned = torch.zeros(3, dtype=torch.uint8)
    unsigned[0] = 1
    unsigned[0] = -1
    assert unsigned.tolist() == [255, 0, 0]


def test_a_retained_gradient_stays_with_the_tensor():
    leaf: Any = torch.ones(3, requires_grad=True)
    x: Any = leaf * 2
    x.retain_grad()
    x.mul_(3)
    x.sum().backward()
    assert x.grad.tolist() == [1, 1, 1]
    assert leaf.grad.tolist() == [6, 6, 6]


def test_nothing_is_left_of_writes():
    x = source("pending")

    def step():
        for name in ("add", "a row", "a number", "through two views", "twice", "copy"):
            WRITES[name](x)
        x.tolist()

    def counted():
        gc.collect()
        kinds = [type(found) for found in gc.get_objects()]
        return [kinds.count(kind) for kind in (Value, torch.Tensor)]

    for _ in range(5):
        step()
    before = counted()
    for _ in range(50):
        step()
    assert counted() == before
    assert len(x._views or ()) < 20
