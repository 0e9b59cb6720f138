"""Random paths of views have PyTorch's layouts, and programs of tensors that share elements its values."""

from __future__ import annotations

import os
import random
from math import prod

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

_PROGRAMS = int(os.environ.get("WEFT_ORACLE_SAMPLES", "10")) * 10 or 2000
_SHAPES = [(2, 3), (3, 4), (2, 3, 4), (4,), (2, 1, 3), (1,), (), (3, 2, 2, 2), (6, 1)]


def factors(draw, count):
    """Sizes whose product is `count`."""
    sizes = []
    while count > 1 and len(sizes) < 3:
        sizes.append(draw.choice([n for n in range(1, count + 1) if count % n == 0]))
        count //= sizes[-1]
    sizes += [count] if count != 1 or not sizes else []
    sizes.insert(draw.randrange(len(sizes) + 1), 1)
    return sizes


def views(draw, shape):
    """The views that a tensor of this shape may be asked for: by name, functions of a tensor."""
    ndim = len(shape)
    dim, other = (draw.randrange(-ndim, ndim) if ndim else 0 for _ in range(2))
    sizes = factors(draw, prod(shape)) if prod(shape) else list(shape)[::-1]
    found = {
        "squeeze": lambda x: x.squeeze(),
        "unsqueeze": lambda x: x.unsqueeze(dim),
        "view": lambda x: x.view(sizes),
        "reshape": lambda x: x.reshape(sizes),
        "flatten": lambda x: x.flatten(),
        "ravel": lambda x: x.ravel(),
        "contiguous": lambda x: x.contiguous(),
        "itself": lambda x: x[...],
        "detach": lambda x: x.detach(),
    }
    if not ndim:
        return found
    start, stop, step = draw.randrange(4), draw.randrange(6), draw.randrange(1, 4)
    order = draw.sample(range(ndim), ndim)
    wide = [n if n != 1 else draw.choice([1, 3]) for n in shape]
    first = draw.randrange(shape[dim] + 1)
    length, lead = draw.randrange(shape[dim] - first + 1), draw.choice([1, 2])
    least, last = sorted((dim % ndim, other % ndim))
    found |= {
        "slice": lambda x: x[(slice(None),) * (dim % ndim) + (slice(start, stop, step),)],
        "transpose": lambda x: x.transpose(dim, other),
        "permute": lambda x: x.permute(order),
        "movedim": lambda x: x.movedim(dim, other),
        "expand": lambda x: x.expand(wide),
        "lead": lambda x: x.expand(lead, *[-1] * ndim),
        "narrow": lambda x: x.narrow(dim, first, length),
        "chunk": lambda x: x.chunk(2, dim)[-1],
        "flatten some": lambda x: x.flatten(least, last),
    }
    if shape[dim]:
        at, size = draw.randrange(-shape[dim], shape[dim]), draw.randrange(1, shape[dim] + 1)
        found |= {
            "select": lambda x: x.select(dim, at),
            "unbind": lambda x: x.unbind(dim)[at],
            "unfold": lambda x: x.unfold(dim, size, step),
        }
    if ndim > 1 and dim % ndim != other % ndim:
        offset = draw.randrange(-2, 3)
        found |= {"diagonal": lambda x: x.diagonal(offset, dim, other), "mT": lambda x: x.mT, "mH": lambda x: x.mH}
    return found


def parts():
    """What complex tensors may be asked for, besides."""
    return {
        "real": lambda x: x.real,
        "imag": lambda x: x.imag,
        "conj": lambda x: x.conj(),
        "view_as_real": lambda x: (torch if isinstance(x, torch.Tensor) else weft).view_as_real(x),
    }


def tried(function, tensor):
    """What comes out, or what is said against it."""
    try:
        return function(tensor), ""
    except (RuntimeError, IndexError) as error:
        return None, str(error)


def layout(x):
    return tuple(x.shape), tuple(x.stride()), x.storage_offset(), x.is_contiguous(), x.is_conj(), x.is_neg()


def elements(x):
    return np.asarray(x.resolve_conj().resolve_neg().detach().numpy())


@pytest.mark.parametrize("seed", range(_PROGRAMS))
def test_layouts_and_writes(seed):
    draw = random.Random(seed)
    shape, is_complex = draw.choice(_SHAPES), draw.random() < 0.2
    host = np.arange(1.0, 1.0 + prod(shape), dtype=np.complex64 if is_complex else np.float32).reshape(shape)
    host = host * 1j + 1 if is_complex else host
    theirs, ours = torch.tensor(host), weft.tensor(host)
    handles, names = [(theirs, ours)], []
    for _ in range(draw.randrange(1, 6)):
        table = views(draw, tuple(theirs.shape)) | (parts() if theirs.is_complex() else {})
        names.append(draw.choice(sorted(table)))
        (theirs, refused), (ours, said) = tried(table[names[-1]], theirs), tried(table[names[-1]], ours)
        assert said == refused, names
        if refused:
            return
        assert layout(ours) == layout(theirs), names
        handles.append((theirs, ours))
    (_, refused), (_, said) = tried(lambda x: x.add_(5), theirs), tried(lambda x: x.add_(5), ours)
    assert said == refused, names
    if "unfold" not in names:  # else elements may be written several times, in an order that nobody promises
        for theirs, ours in handles:
            np.testing.assert_array_equal(elements(ours), elements(theirs), str(names))


class Sharing:
    """A program on tensors that share elements: each line is done by both, and every handle is compared."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.handles = [(torch.arange(6.0), weft.arange(6.0).clone())]
        self.lines = []

    def both(self, function):
        """Do a line; what it returns is another handle."""
        found = [function(framework, [h[at] for h in self.handles]) for at, framework in enumerate((torch, weft))]
        if found[0] is not None and not any(found[0] is theirs for theirs, _ in self.handles):
            self.handles.append(tuple(found))

    def line(self):
        k, j, n = (
            self.draw.randrange(len(self.handles)),
            self.draw.randrange(len(self.handles)),
            self.draw.randrange(2, 9),
        )
        x, other = self.handles[k][0], self.handles[j][0]
        table = {
            "detach": lambda m, h: h[k].detach(),
            "data": lambda m, h: h[k].data,
            "times": lambda m, h: h[k] * n,
            "parameter": lambda m, h: m.nn.Parameter(h[k]),
            "through data": lambda m, h: void(h[k].data.add_(n)),
            "frozen": lambda m, h: m.nn.Parameter(h[k].data, requires_grad=False),
        }
        if x.ndim and x.shape[0] > 1:
            table["slice"] = lambda m, h: h[k][1:]
        if x.ndim == 1 and not x.numel() % 2:
            table["view"] = lambda m, h: h[k].view(2, -1).t()
        if x.is_leaf and not x._is_view():
            if x.shape == other.shape:
                table["set data"] = lambda m, h: setattr(h[k], "data", h[j])
            if not any(theirs._is_view() and theirs._base is x for theirs, _ in self.handles):
                table["requires grad"] = lambda m, h: void(h[k].requires_grad_())
        if not x.requires_grad and not (x._is_view() and x._base.requires_grad):
            table["write"] = lambda m, h: void(h[k].mul_(2))
        if x.shape == other.shape:
            table["copy"] = untaped(lambda m, h: h[k].copy_(h[j]))
        table["untaped"] = untaped(lambda m, h: h[k].add_(n))
        name = self.draw.choice(sorted(table))
        self.lines.append(f"{name}({k}, {j}, {n})")
        self.both(table[name])

    def compare(self):
        for at, (theirs, ours) in enumerate(self.handles):
            where = f"{self.lines} handle {at}"
            np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy(), where)
            assert (ours.requires_grad, ours.is_leaf) == (theirs.requires_grad, theirs.is_leaf), where

    def gradients(self):
        leaves = [pair for pair in self.handles if pair[0].is_leaf and pair[0].requires_grad]
        for theirs, ours in self.handles:
            if theirs.requires_grad:
                theirs.sum().backward(retain_graph=True)
                ours.sum().backward(retain_graph=True)
        for theirs, ours in leaves:
            np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy(), str(self.lines))


def void(_):
    return None


def untaped(write):
    def line(m, h):
        with m.no_grad():
            write(m, h)

    return line


@pytest.mark.parametrize("seed", range(_PROGRAMS))
def test_programs_that_share(seed):
    program = Sharing(seed)
    for _ in range(program.draw.randrange(4, 14)):
        program.line()
        program.compare()
    program.gradients()
