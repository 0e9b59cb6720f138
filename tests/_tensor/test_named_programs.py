"""Random programs over tensors with names of dims.

The values are those of the same program without names, bit for bit, and so are gradients but for rounding. The names
are those that a model of the rules predicts, which is written here and knows nothing of the table's dim rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

import weft
from weft import Tensor
from weft.errors import DimNameError
from weft.nn import functional as F

Names = tuple[str | None, ...]
Choose = Callable[[Sequence[Any]], Any]

_SIZES = {"N": 2, "C": 3, "H": 2, "W": 3}
_MOST_DIMS, _MOST_ELEMENTS = 4, 200
_PROGRAMS = 5 * settings.default.max_examples  # under the profile in effect: some hundreds, or thousands


@dataclass(slots=True)
class Twin:
    """A tensor of the program, its like in the program without names, and the names that the first has to have."""

    named: Tensor
    plain: Tensor
    names: Names

    @property
    def dims(self) -> range:
        return range(len(self.names))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.plain.shape)


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: what both programs do, and the prediction; `target` is the tensor that it writes to."""

    run: Callable[[Tensor, *tuple[Tensor, ...]], Tensor]
    operands: tuple[Twin, ...]
    predict: Callable[[], Names]
    run_plain: Callable[..., Tensor] | None = None
    target: Twin | None = None


class Clash(Exception):
    """The names do not fit."""


# --- the model ---


def _unified(*operands: Names) -> Names:
    """The names of operands that are lined up from the right."""
    result: Names = ()
    for names in operands:
        for some, others in ((result, names), (names, result)):
            for back, name in enumerate(reversed(some), 1):
                if name is not None and name in others and others.index(name) - len(others) != -back:
                    raise Clash
        merged: list[str | None] = []
        for a, b in zip_longest(reversed(result), reversed(names)):
            if a is not None and b is not None and a != b:
                raise Clash
            merged.append(a if b is None else b)
        result = tuple(reversed(merged))
    return result


def _distinct(names: Names) -> Names:
    given = [name for name in names if name is not None]
    if len(given) != len(set(given)):
        raise Clash
    return names


def _first_of_each(names: Names) -> Names:
    """A name that two dims would have goes to the first, in the order of the tensors that they come from."""
    return tuple(None if name in names[:dim] else name for dim, name in enumerate(names))


def _written(target: Names, computed: Names) -> Names:
    """The names of a tensor after results were written to it."""
    if any(target) and any(computed) and target != computed:
        raise Clash
    return target if any(target) else computed


def _without(names: Names, *dims: int) -> Names:
    return tuple(name for dim, name in enumerate(names) if dim not in dims)


# --- the operators ---


def _spelled(choose: Choose, x: Twin, dim: int) -> int | str:
    """A dim, by its name or by its number, from the front or from the back."""
    return choose([spelling for spelling in (x.names[dim], dim, dim - len(x.names)) if spelling is not None])


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def _unary(choose: Choose, pool: list[Twin]) -> Step:
    x = choose(pool)
    run = choose([weft.tanh, weft.abs, F.relu, lambda x: x * 0.5, lambda x: 1 - x, weft.sigmoid, Tensor.clone])
    return Step(run, (x,), lambda: x.names)


def _binary(choose: Choose, pool: list[Twin]) -> Step:
    x = choose(pool)
    y = choose([y for y in pool if _broadcasts(x.shape, y.shape)])
    run = choose([weft.add, weft.mul, weft.sub, weft.maximum, lambda a, b: (a < b).float(), weft.atan2])
    return Step(run, (x, y), lambda: _unified(x.names, y.names))


def _where(choose: Choose, pool: list[Twin]) -> Step:
    x = choose(pool)
    y = choose([y for y in pool if _broadcasts(x.shape, y.shape)])
    return Step(lambda a, b: weft.where(a > 0, a, b), (x, y), lambda: _unified(x.names, y.names))


def _reduction(choose: Choose, pool: list[Twin]) -> Step | None:
    x = choose(pool)
    if not x.names:
        return None
    reduce = choose(
        [
            Tensor.sum, Tensor.mean, Tensor.amax, Tensor.logsumexp, Tensor.prod, Tensor.var,
            lambda x, dim, keepdim: x.max(dim, keepdim=keepdim).values,
            lambda x, dim, keepdim: x.argmax(dim, keepdim=keepdim).float(),
        ]
    )  # fmt: skip
    dim, keepdim = choose(x.dims), choose([False, True])
    spelled = _spelled(choose, x, dim)
    names = x.names if keepdim else _without(x.names, dim)
    return Step(
        lambda x: reduce(x, spelled, keepdim=keepdim),
        (x,),
        lambda: names,
        lambda x: reduce(x, dim, keepdim=keepdim),
    )


def _total(choose: Choose, pool: list[Twin]) -> Step | None:
    x = choose(pool)
    if len(x.names) < 2:
        return None
    dims = choose([(0, 1), (0, len(x.names) - 1)])
    spelled = [_spelled(choose, x, dim) for dim in dims]
    return Step(lambda x: x.sum(spelled), (x,), lambda: _without(x.names, *dims), lambda x: x.sum(dims))


def _along(choose: Choose, pool: list[Twin]) -> Step | None:
    x = choose(pool)
    if not x.names:
        return None
    run = choose([Tensor.softmax, Tensor.cumsum, F.log_softmax, lambda x, dim: x.sort(dim=dim).values])
    dim = choose(x.dims)
    spelled = _spelled(choose, x, dim)
    return Step(lambda x: run(x, spelled), (x,), lambda: x.names, lambda x: run(x, dim))


def _transpose(choose: Choose, pool: list[Twin]) -> Step | None:
    x = choose(pool)
    if not x.names:
        return None
    a, b = choose(x.dims), choose(x.dims)
    by_name = x.names[a] is not None and x.names[b] is not None and choose([False, True])
    pair = (x.names[a], x.names[b]) if by_name else (a, b)
    names = list(x.names)
    names[a], names[b] = names[b], names[a]
    return Step(lambda x: x.transpose(*pair), (x,), lambda: tuple(names), lambda x: x.transpose(a, b))


def _permute(choose: Choose, pool: list[Twin]) -> Step:
    x = choose(pool)
    left, order = list(x.dims), []
    while left:
        order.append(left.pop(choose(range(len(left)))))
    return Step(lambda x: x.permute(order), (x,), lambda: tuple([x.names[dim] for dim in order]))


def _pick(choose: Choose, pool: list[Twin]) -> Step | None:
    x = choose(pool)
    if not x.names:
        return None
    dim = choose(x.dims)
    spelled, at = _spelled(choose, x, dim), choose(range(x.shape[dim]))
    run = choose([lambda x, dim: x.select(dim, at), lambda x, dim: x.unbind(dim)[at]])
    return Step(lambda x: run(x, spelled), (x,), lambda: _without(x.names, dim), lambda x: run(x, dim))


def _subscript(choose: Choose, pool: list[Twin]) -> Step:
    """A dim is cut, dropped or new."""
    x = choose(pool)
    entries = [choose([slice(None), slice(0, 1), 0, None]) for _ in x.dims]
    names: list[str | None] = []
    at = 0
    for entry in entries:
        if entry is None:
            names.append(None)
            continue
        if entry != 0:
            names.append(x.names[at])
        at += 1
    names += x.names[at:]
    return Step(lambda x: x[tuple(entries)], (x,), lambda: tuple(names))


def _unsqueeze(choose: Choose, pool: list[Twin]) -> Step:
    x = choose(pool)
    dim = choose(range(len(x.names) + 1))
    return Step(lambda x: x.unsqueeze(dim), (x,), lambda: (*x.names[:dim], None, *x.names[dim:]))


def _squeeze(choose: Choose, pool: list[Twin]) -> Step:
    x = choose(pool)
    return Step(Tensor.squeeze, (x,), lambda: tuple(n for n, size in zip(x.names, x.shape, strict=True) if size != 1))


def _expand(choose: Choose, pool: list[Twin]) -> Step:
    x = choose(pool)
    return Step(lambda x: x.expand(2, *[-1] * len(x.names)), (x,), lambda: (None, *x.names))


def _matmul(choose: Choose, pool: list[Twin]) -> Step | None:
    pairs = [
        (x, y)
        for x in pool
        for y in pool
        if len(x.names) >= 2 <= len(y.names) and x.shape[-1] == y.shape[-2] and _broadcasts(x.shape[:-2], y.shape[:-2])
    ]
    if not pairs:
        return None
    x, y = choose(pairs)
    return Step(
        weft.matmul,
        (x, y),
        lambda: _distinct((*_unified(x.names[:-2], y.names[:-2]), x.names[-2], y.names[-1])),
    )


def _einsum(choose: Choose, pool: list[Twin]) -> Step | None:
    pairs = [(x, y) for x in pool for y in pool if len(x.names) == len(y.names) == 2 and x.shape[1] == y.shape[1]]
    if not pairs:
        return None
    x, y = choose(pairs)
    return Step(
        lambda x, y: weft.einsum("ij,kj->ki", x, y), (x, y), lambda: _first_of_each((x.names[0], y.names[0]))[::-1]
    )


def _linear(choose: Choose, pool: list[Twin]) -> Step | None:
    pairs = [(x, w) for x in pool for w in pool if x.names and len(w.names) == 2 and x.shape[-1] == w.shape[1]]
    if not pairs:
        return None
    x, w = choose(pairs)
    return Step(F.linear, (x, w), lambda: _distinct((*x.names[:-1], w.names[0])))


def _norm(choose: Choose, pool: list[Twin]) -> Step | None:
    x = choose(pool)
    return Step(lambda x: F.layer_norm(x, x.shape[-1:]), (x,), lambda: x.names) if x.names else None


def _together(choose: Choose, pool: list[Twin]) -> Step | None:
    x = choose([x for x in pool if x.names] or [None])
    if x is None:
        return None
    y = choose([y for y in pool if y.shape == x.shape])
    dim = choose(x.dims)
    if choose([False, True]):
        return Step(
            lambda x, y: weft.stack([x, y], dim),
            (x, y),
            lambda: (*_unified(x.names, y.names)[:dim], None, *_unified(x.names, y.names)[dim:]),
        )
    return Step(lambda x, y: weft.cat([x, y], dim), (x, y), lambda: _unified(x.names, y.names))


def _rename(choose: Choose, pool: list[Twin]) -> Step:
    x = choose(pool)
    new = [choose([None, *_SIZES]) for _ in x.names]
    if not new:
        return _unary(choose, pool)
    return Step(lambda x: x.rename(*new), (x,), lambda: _distinct(tuple(new)), lambda x: x.rename(None))


def _rename_one(choose: Choose, pool: list[Twin]) -> Step | None:
    x = choose(pool)
    old = choose([name for name in x.names if name is not None] or [None])
    if old is None:
        return None
    new = choose([None, *_SIZES])
    names = tuple(new if name == old else name for name in x.names)
    return Step(lambda x: x.rename(**{old: new}), (x,), lambda: _distinct(names), lambda x: x.rename(None))


def _refine(choose: Choose, pool: list[Twin]) -> Step:
    x = choose(pool)
    new = choose([None, *_SIZES])
    names = list(x.names)
    if None not in names:
        return _unary(choose, pool)
    names[names.index(None)] = new
    return Step(lambda x: x.refine_names(*names), (x,), lambda: _distinct(tuple(names)), lambda x: x.rename(None))


def _align(choose: Choose, pool: list[Twin]) -> Step | None:
    x = choose(pool)
    order = choose([("W", "H", "C", "N"), ("H", "N"), ("C", "N", "W"), ("N", "C", "H", "W")])
    if not x.names:
        return None

    def predicted() -> Names:
        if None in x.names or not set(x.names) <= set(order):
            raise Clash
        return order

    def plain(x_plain: Tensor) -> Tensor:
        result = x_plain.permute([x.names.index(name) for name in order if name in x.names])
        for at, name in enumerate(order):
            result = result if name in x.names else result.unsqueeze(at)
        return result

    return Step(lambda x: x.align_to(*order), (x,), predicted, plain)


def _flatten(choose: Choose, pool: list[Twin]) -> Step | None:
    x = choose(pool)
    starts = [dim for dim in x.dims[:-1] if x.names[dim] is not None and x.names[dim + 1] is not None]
    if not starts:
        return None
    at = choose(starts)
    dims, new = [x.names[at], x.names[at + 1]], choose(list(_SIZES))
    return Step(
        lambda x: x.flatten(dims, new),
        (x,),
        lambda: _distinct((*x.names[:at], new, *x.names[at + 2 :])),
        lambda x: x.flatten(at, at + 1),
    )


def _unflatten(choose: Choose, pool: list[Twin]) -> Step | None:
    x = choose([x for x in pool if any(x.names)] or [None])
    if x is None:
        return None
    dim = choose([dim for dim in x.dims if x.names[dim] is not None])
    new = [choose(list(_SIZES)) for _ in range(2)]
    return Step(
        lambda named: named.unflatten(x.names[dim], ((new[0], x.shape[dim]), (new[1], 1))),
        (x,),
        lambda: _distinct((*x.names[:dim], *new, *x.names[dim + 1 :])),
        lambda plain: plain.unflatten(dim, (x.shape[dim], 1)),
    )


def _write(choose: Choose, pool: list[Twin]) -> Step | None:
    """In place, perhaps through a view."""
    targets = [x for x in pool if all(x.plain.stride())]  # an expanded tensor cannot be written to
    if not targets:
        return None
    x = choose(targets)
    y = choose([y for y in pool if len(y.names) <= len(x.names) and _fits(y.shape, x.shape)])
    run = choose([Tensor.add_, Tensor.mul_, Tensor.copy_])
    return Step(lambda x, y: run(x, y.clone()), (x, y), lambda: _written(x.names, _unified(x.names, y.names)), target=x)


def _fits(source: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return all(m in (n, 1) for m, n in zip(reversed(source), reversed(target), strict=False))


def _out(choose: Choose, pool: list[Twin]) -> Step | None:
    """Into the tensor of another shape or of the same, whose names have to be those of the result."""
    x = choose(pool)
    names = choose([x.names, (None,) * len(x.names), tuple(reversed(x.names))])
    named = weft.zeros(x.shape).rename(*names) if names else weft.zeros(())
    plain = weft.zeros(x.shape)
    return Step(
        lambda x: weft.exp(x.detach(), out=named),
        (x,),
        lambda: _written(names, x.names),
        lambda x: weft.exp(x.detach(), out=plain),
    )


_OPERATORS = (
    _unary, _binary, _where, _reduction, _total, _along, _transpose, _permute, _pick, _subscript, _unsqueeze, _squeeze,
    _expand, _matmul, _einsum, _linear, _norm, _together, _rename, _rename_one, _refine, _align, _flatten, _unflatten,
    _write, _out,
)  # fmt: skip


# --- the programs ---


def _leaf(choose: Choose, seed: int) -> Twin:
    """A leaf that requires a gradient; some of its dims have names."""
    left, names, shape = list(_SIZES), [], []
    for _ in range(choose(range(4))):
        name = left.pop(choose(range(len(left))))
        names.append(choose([name, name, None]))
        shape.append(_SIZES[name])
    data = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    plain = weft.from_numpy(data)
    named = plain.clone().rename(*names) if names else plain.clone()
    return Twin(named.detach().requires_grad_(), plain.requires_grad_(), tuple(names))


def _run(step: Step, pool: list[Twin]) -> None:
    """One step in both programs. A new result is one more tensor, if it is not too large."""
    named = [x.named for x in step.operands]
    try:
        names = step.predict()
    except Clash:
        with pytest.raises(DimNameError):
            step.run(*named)
        return
    result = Twin(step.run(*named), (step.run_plain or step.run)(*[x.plain for x in step.operands]), names)
    if step.target is not None:
        step.target.names = names
        result = step.target
    assert result.named.names == names
    assert result.named.has_names() == any(names)
    assert not result.plain.has_names()
    if step.target is None and len(names) <= _MOST_DIMS and prod(result.shape) <= _MOST_ELEMENTS:
        pool.append(result)


@settings(max_examples=_PROGRAMS, phases=(Phase.explicit, Phase.reuse, Phase.generate))  # it would shrink for minutes
@given(data=st.data())
def test_programs_with_names_and_without(data: st.DataObject):
    def choose(options: Sequence[Any]) -> Any:
        return options[data.draw(st.integers(0, len(options) - 1))]

    leaves = [_leaf(choose, seed) for seed in range(3)]
    pool = [Twin(x.named * 1, x.plain * 1, x.names) for x in leaves]
    for _ in range(choose(range(10, 21))):
        operator = choose(_OPERATORS)
        step = operator(choose, pool)
        if step is not None:
            note(f"{operator.__name__} of {', '.join(f'{x.names} {x.shape}' for x in step.operands)}")
            _run(step, pool)
    for results in ([x.named for x in pool], [x.plain for x in pool]):
        weft.autograd.backward([result.sum() for result in results if result.requires_grad])
    for x in [*pool, *leaves]:
        assert x.named.names == x.names
        np.testing.assert_array_equal(x.named.detach().numpy(), x.plain.detach().numpy())
    for x in leaves:
        if x.plain.grad is not None:
            assert x.named.grad is not None
            assert x.named.grad.names == x.names
            expected = x.plain.grad.numpy()  # a renamed view is a vertex, so sums may be grouped otherwise
            largest = np.abs(expected).max(initial=0, where=np.isfinite(expected))
            np.testing.assert_allclose(x.named.grad.numpy(), expected, rtol=1e-4, atol=1e-5 * largest)
