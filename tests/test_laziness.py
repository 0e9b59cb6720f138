"""Laziness is invisible: random programs give the same numbers lazily, eagerly and compiled, and in every tier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import weft
from weft._base import config
from weft._base.state import using

SHAPE = (2, 3)
SLOTS = 3  # tensors that a program works on; the first two are leaves that collect gradients

POINTWISE = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "sub": lambda x, y: x - 0.5 * y,
    "sin": lambda x, y: x.sin(),
    "relu": lambda x, y: x.relu(),
    "where": lambda x, y: weft.where(x > y, x, y),
    "softmax": lambda x, y: x.softmax(-1),
    "sums": lambda x, y: x - y.sum(0),
    "matmul": lambda x, y: x @ y.t() @ y,
    "sort": lambda x, y: x.sort(-1).values,
    "cumsum": lambda x, y: x.cumsum(1),
    "take": lambda x, y: x[weft.tensor([1, 0])],
}
VIEWS = {
    "row": lambda x: x[1],
    "column": lambda x: x[:, 2],
    "step": lambda x: x[:, ::2],
    "transposed": lambda x: x.t()[1:],
    "flat": lambda x: x.view(6)[1:5],
    "all": lambda x: x[:],
}
WRITES = {
    "fill": lambda v, y: v.fill_(0.25),
    "mul": lambda v, y: v.mul_(1.5),
    "add": lambda v, y: v.add_(y.sum()),
    "assign": lambda v, y: v.__setitem__(0, y.mean()),
    "pick": lambda v, y: v.__setitem__(weft.tensor([0]), y.max()),
}


@dataclass(frozen=True)
class Step:
    """One line of a program: what to do with slots `a` and `b`, into slot `to`."""

    kind: str
    what: str
    a: int
    b: int
    to: int
    other: str = ""


def steps():
    """Strategies for each kind of line."""
    slot, target = st.integers(0, SLOTS - 1), st.just(SLOTS - 1)

    def line(kind, table, to=slot, other=None):
        what, extra = st.sampled_from(sorted(table)), st.sampled_from(sorted(other or [""]))
        return st.builds(Step, st.just(kind), what, slot, slot, to, extra)

    return st.one_of(
        line("operator", POINTWISE, target),
        line("write", WRITES, target, VIEWS),
        line("untaped", WRITES, slot, VIEWS),
        line("aliased", WRITES, target, VIEWS),
        line("backward", ["keep", "free"]),
        line("read", ["tolist", "grad"]),
        line("draw", ["rand"], target),
    )


PROGRAMS = st.lists(steps(), min_size=1, max_size=6)


class Machine:
    """Runs programs; what it reads, it keeps."""

    def __init__(self, slots, reads: bool) -> None:
        self.slots = list(slots)
        self.kept: list[Any] = []
        self.views: list[Any] = []
        self.reads = reads

    def run(self, program):
        for step in program:
            getattr(self, step.kind)(step)
        return [*self.slots, *self.kept, *self.views]

    def operator(self, step):
        found = POINTWISE[step.what](self.slots[step.a], self.slots[step.b])
        self.slots[step.to] = found.tanh()  # keeps numbers small

    def write(self, step):
        if self.slots[step.to].is_leaf:
            self.slots[step.to] = self.slots[step.to] * 1
        WRITES[step.what](VIEWS[step.other](self.slots[step.to]), self.slots[step.b])

    def untaped(self, step):
        with weft.no_grad():
            WRITES[step.what](VIEWS[step.other](self.slots[step.to]), self.slots[step.b])

    def aliased(self, step):
        """A view that stays in use while its base is written."""
        x = self.slots[step.to] = self.slots[step.to] * 1
        view = VIEWS[step.other](x)
        self.views.append(view)
        WRITES[step.what](x, self.slots[step.b])
        self.slots[step.to] = x + view.sum()

    def backward(self, step):
        loss = (self.slots[SLOTS - 1] ** 2).sum()
        if loss.requires_grad:
            loss.backward(retain_graph=True)
            if step.what == "free":
                self.slots[SLOTS - 1] = self.slots[SLOTS - 1].detach().clone()

    def read(self, step):
        x = self.slots[step.a]
        if not self.reads:
            return
        if step.what == "grad":
            self.kept.append(x.grad.clone() if x.is_leaf and x.grad is not None else x.detach().clone())
        x.detach().tolist()

    def draw(self, step):
        self.slots[step.to] = self.slots[step.to] + weft.rand(SHAPE, dtype=weft.float64)


def slots():
    host = np.linspace(-1, 1, 6).reshape(SHAPE)
    leaves = [weft.tensor(host * (1 + i)).requires_grad_() for i in range(SLOTS - 1)]
    return [*leaves, leaves[0] * leaves[1]]


def outcome(found, leaves):
    grads = [leaf.grad for leaf in leaves]
    return [None if x is None else x.detach().numpy() for x in (*found, *grads)]


def run(program, *, eager=False, reads=True):
    weft.manual_seed(0)
    with using(eager=eager):
        start = slots()
        found = Machine(start, reads).run(program)
        return outcome(found, start[:-1])


def run_compiled(program, calls):
    """The outcome of the last of some calls of the compiled program, each on fresh tensors' contents."""
    weft.manual_seed(0)
    leaves = slots()[:-1]
    state = weft.default_generator.state()

    def whole():
        return Machine([*leaves, leaves[0] * leaves[1]], reads=False).run(program)

    compiled = weft.compile(whole, fullgraph=True)
    for _ in range(calls):
        for leaf, fresh in zip(leaves, slots(), strict=False):
            leaf.data = fresh.detach()
            leaf.grad = None
        weft.default_generator.restore(state)
        found = compiled()
    return outcome(found, leaves)


def agree(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if b is None:
            assert a is None
        else:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@given(PROGRAMS)
@example([Step("write", "add", 0, 0, 2, "column"), Step("write", "pick", 0, 0, 2, "flat")])
def test_eager_and_lazy_runs_agree(program):
    agree(run(program), run(program, eager=True))


@pytest.mark.slow
@given(PROGRAMS)
@pytest.mark.soak
def test_tiers_agree(program):
    found = {}
    for tier in ("interpreted", "compiled", "auto"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(config, "TIER", tier)
            found[tier] = run(program)
    agree(found["interpreted"], found["compiled"])
    agree(found["auto"], found["compiled"])


@pytest.mark.slow
@given(PROGRAMS)
def test_compiled_and_eager_runs_agree(program):
    agree(run_compiled(program, calls=2), run(program, eager=True, reads=False))
