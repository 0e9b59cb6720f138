"""Views by the extension's twins are those that Python makes: same aliases, same recorded operators, same places."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft._base.state import ambient, using
from weft._lazy.native import native
from weft._lazy.value import Value
from weft._tensor.state import NO_FACTS

pytestmark = pytest.mark.skipif(native is None, reason="the extension is not built, or turned off")

AT, SHORT_AT, PENDING_AT = torch.tensor([1, 0, -1]), torch.tensor([1, 0]), torch.tensor([1, 0, 0]) * 1
POSITION = torch.tensor(1)
MASK, PENDING_MASK = torch.tensor([[True, False, True], [False, False, True]]), torch.tensor([1.0, -1, 1]) > 0
VIEWS = {
    "x.t": lambda x: x[0].t(),
    "T": lambda x: x[0].T,
    "mT": lambda x: x.mT,
    "view": lambda x: x.view(2, 12),
    "view of a size": lambda x: x.view(x.shape),
    "view of a tuple": lambda x: x.view((6, -1)),
    "view by name": lambda x: x.view(size=(6, 4)),
    "reshape": lambda x: x.reshape(-1),
    "reshape of a copy": lambda x: x.mT.reshape(-1),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(-1, (2, 2)),
    "transpose": lambda x: x.transpose(0, -1),
    "transpose by name": lambda x: x.transpose(dim0=0, dim1=1),
    "permute": lambda x: x.permute(2, 0, 1),
    "permute of a tuple": lambda x: x.permute((2, 0, 1)),
    "movedim": lambda x: x.movedim(0, 2),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze of dims": lambda x: x[:1, :1].squeeze((0, 1)),
    "expand": lambda x: x[:, :1].expand(-1, 5, -1),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "select": lambda x: x.select(-1, -2),
    "narrow": lambda x: x.narrow(1, -2, 2),
    "int": lambda x: x[1],
    "negative int": lambda x: x[-1],
    "ints": lambda x: x[1, 2, 3],
    "slice": lambda x: x[:, 1:],
    "steps": lambda x: x[:, ::2, -3:],
    "empty slice": lambda x: x[:, 5:],
    "ellipsis": lambda x: x[..., 0],
    "none": lambda x: x[:, None, 1],
    "two ellipses": lambda x: x[..., 1, ...],
    "nothing": lambda x: x[:],
    "no items": lambda x: x[()],
    "true": lambda x: x[True],
    "an index tensor": lambda x: x[AT],
    "a pending index tensor": lambda x: x[PENDING_AT],
    "index tensors": lambda x: x[:, AT, AT],
    "index tensors apart": lambda x: x[SHORT_AT, :, SHORT_AT],
    "of type int32": lambda x: x[AT.int()],
    "two dims of an index": lambda x: x[:, AT.reshape(3, 1)],
    "an index tensor and others": lambda x: x[1, None, AT, 1:],
    "a pending position": lambda x: x[POSITION + 0],
    "a list": lambda x: x[[0, 1]],
    "a mask": lambda x: x[MASK],
    "a mask of one dim": lambda x: x[:, PENDING_MASK],
    "a mask and an int": lambda x: x[1, PENDING_MASK, 1:],
    "unbind": lambda x: x.unbind(1)[2],
    "split": lambda x: x.split(2, 1)[1],
    "split of sizes": lambda x: x.split([1, 2], dim=1)[1],
    "chunk": lambda x: x.chunk(3, -1)[1],
    "iteration": lambda x: list(x)[1],
    "unpacking": lambda x: (lambda a, b: b)(*x),
    "detach": lambda x: x.detach(),
    "two views": lambda x: x[1].view(4, 3)[2],
    "a view of a copy": lambda x: x.transpose(1, 2).reshape(2, 12)[0],
}


def source(kind):
    base = torch.arange(24.0).reshape(2, 3, 4)
    base.tolist()
    match kind:
        case "pending":
            return base + 1
        case "in memory":
            base = base + 0
            base.tolist()
            return base
        case "leaf":
            return base.clone().requires_grad_()
        case "interior":
            return base.clone().requires_grad_() * 2
        case "view":
            return torch.cat([base, base]).view(-1)[12:36].view(2, 3, 4)
        case "detached":
            return base.clone().requires_grad_().detach()
        case "parameter":
            return torch.nn.Parameter(base + 1)
        case _:
            raise ValueError(kind)


SOURCES = ("pending", "leaf", "interior", "view", "detached", "parameter")


def operators(value):
    if value.origin is None:
        return value.content if value.aval.weak else "leaf"
    return value.origin.signature.name, *map(operators, value.inputs)


def doubt_about(value):
    """The check on which a value depends: what it reads, and whether it has passed."""
    if value.origin is None or value.origin.signature.requirement is None:
        return None
    check = value.doubt.check
    assert check.doubt() is value.doubt
    return check.passed, operators(check.code), check.signature, check.failure, check.reported, bool(check.site)


def description(view, x):
    alias = view._alias
    value = view._read()
    described = [value.aval, type(value.role), operators(value), type(view), doubt_about(value)]
    if alias is None:
        return described
    steps = [(call, [other.number for other in others]) for call, others in alias.steps]
    base = "itself" if alias.base is x else "another"
    listed = sum(ref() is view for ref in alias.base._views)
    return [*described, base, steps, alias.tracked, alias.hidden, alias.place, alias.layout, listed]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("name", VIEWS)
def test_a_twin_makes_the_same_view(name, kind, grad):
    x = source(kind)
    view = VIEWS[name]
    with using(grad=grad):
        view(x)  # its arguments are known from now on
        fast = description(view(x), x)
        with using(observers=(lambda values: None,)):
            slow = description(view(x), x)
    assert fast == slow


@pytest.mark.parametrize("name", VIEWS)
def test_parts_of_what_is_in_memory_are_shown(name, monkeypatch):
    x = source("in memory")
    view = VIEWS[name]
    expected = view(x + 0).tolist()
    for _ in range(2):
        before = len(ambient().pending)
        result = view(x)
        if name in ("int", "ints", "slice", "steps", "ellipsis", "select", "narrow", "unbind", "iteration", "split"):
            assert len(ambient().pending) == before
            assert result._read().content.base is not None
        assert result.tolist() == expected


COPIES = ("reshape of a copy", "a view of a copy", "true", "a list", "a mask", "a mask of one dim", "a mask and an int")
COPIES = (*COPIES, *[name for name in VIEWS if "index" in name or "int32" in name])


@pytest.mark.parametrize("name", [name for name in VIEWS if name not in COPIES])
def test_a_write_reaches_the_base_and_a_view_shows_writes(name):
    x = source("pending")
    seen = VIEWS[name](x)
    with torch.no_grad():
        VIEWS[name](x).zero_()
    assert not seen.any()
    x.fill_(7)
    assert (seen == 7).all()


def test_what_moves_its_storage_takes_slices_along():
    x = source("in memory")
    with torch.no_grad():
        y = x[0]
    parameter = torch.nn.Parameter(x)
    parameter.data.zero_()
    assert not y.any()


def test_names_inference_and_modes_go_to_python():
    named = torch.ones(2, 3, names=("a", "b"))
    assert named.transpose("a", "b").names == ("b", "a")
    assert named[0].names == ("b",)
    with torch.inference_mode():
        x = torch.ones(2, 3)
        assert x.t().is_inference()
        assert x[0].is_inference()
    assert x[0].is_inference()
    meta = torch.ones(2, 3, device="meta")
    assert meta[0].device.type == "meta"
    assert torch.ones(2, 3).view(torch.int32).dtype is torch.int32


def test_arguments_that_only_look_equal_are_not_confused():
    x = torch.ones(2, 1, 3)
    assert x.squeeze(1).shape == (2, 3)
    assert x.squeeze((1,)).shape == (2, 3)
    assert x.unsqueeze(1).shape == (2, 1, 1, 3)
    one: Any = 1.0
    with pytest.raises(TypeError):
        x.unsqueeze(one)
    with pytest.raises(TypeError):
        x.unsqueeze(True)
    with pytest.raises(TypeError):
        x.view(6.0)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: x[2], IndexError),
        (lambda x: x[0, 0, 0, 0], IndexError),
        (lambda x: x[::-1], ValueError),
        (lambda x: x[2**70], Exception),
        (lambda x: x.select(3, 0), IndexError),
        (lambda x: x.select(0, 2), IndexError),
        (lambda x: x.narrow(0, 1, 2), RuntimeError),
        (lambda x: x.split(-1), RuntimeError),
        (lambda x: x.split([1, 2]), RuntimeError),
        (lambda x: x.chunk(0), RuntimeError),
        (lambda x: x.unbind(3), IndexError),
        (lambda x: x.mT.view(-1), RuntimeError),
        (lambda x: list(x.sum()), TypeError),
        (lambda x: x[torch.tensor([2])], IndexError),
        (lambda x: x[torch.tensor(2)], IndexError),
        (lambda x: x[:, torch.tensor([-4])], IndexError),
        (lambda x: x[torch.tensor([1.0])], IndexError),
        (lambda x: x[torch.tensor([True])], IndexError),
        (lambda x: x[AT, AT, AT, AT], IndexError),
        (lambda x: x[AT, SHORT_AT], IndexError),
        (lambda x: x[PENDING_AT + 5].tolist(), IndexError),
    ],
)
def test_what_python_refuses_is_refused(call, error):
    x = source("pending")
    for _ in range(2):
        with pytest.raises(error):
            call(x)


def test_a_position_that_is_known_is_a_number():
    x = source("pending")
    view = x[torch.tensor(-1)]
    assert operators(view._read())[0] == "select"
    assert view.tolist() == x[1].tolist()


def test_a_slice_is_made_when_it_is_its_turn():
    x = torch.zeros(3)
    seen = []
    for at, row in enumerate(x):
        seen.append(row.item())
        x.fill_(at + 1)
    assert seen == [0, 1, 2]


def test_nothing_is_left_of_views():
    x = source("interior")
    constants = (NO_FACTS, None, True, False, ())

    def step():
        for view in VIEWS.values():
            view(x)

    def counted():
        x.detach().sum().item()
        gc.collect()
        kinds = [type(found) for found in gc.get_objects()]
        return [kinds.count(kind) for kind in (Value, torch.Tensor, weakref.ref)], [*map(sys.getrefcount, constants)]

    def growth():
        before = counted()
        for _ in range(50):
            step()
        return [np.subtract(after, count) for after, count in zip(counted(), before, strict=True)]

    for _ in range(5):
        step()
    # A leak grows in each of the rounds. What earlier tests left (a thread that ends, a cache that drops its oldest
    # entries) is freed in one of them: the counts then fall, by 128 references to None in the case that was seen.
    rounds = [growth() for _ in range(3)]
    objects, references = (np.median(counts, axis=0) for counts in zip(*rounds, strict=True))
    assert (np.abs(objects) < 20).all(), objects
    assert (np.abs(references) < 100).all(), references
