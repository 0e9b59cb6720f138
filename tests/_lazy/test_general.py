"""What is traced with letters for sizes gives what is traced for each size."""

from __future__ import annotations

from functools import partial
from sys import getrefcount

import numpy as np
import pytest

import weft
from tests._lazy.interpreter.rows import programs, samples
from weft._autograd.derive import derivative_of
from weft._lazy import general, infer
from weft._lazy.aval import aval_of
from weft._lazy.general import Family, form_of, static_with
from weft._lazy.infer import Call, _infer
from weft._lazy.interpreter import prepare
from weft.errors import WeftError

GROUPS = range(8)
FIRST = [group if group == 0 else pytest.param(group, marks=pytest.mark.soak) for group in GROUPS]
GROWN = (0, 9, 13, 17)  # what is added to a size: two examples, the one that is generalised, and one more


@pytest.fixture
def families(monkeypatch):
    """The families that signatures are made in, empty at first."""
    found = {}
    monkeypatch.setattr(general, "_families", found)
    infer._forget_signatures()
    return found


def resized(signature, size, more):
    """The call and the types of a signature where one size is a larger one wherever it occurs."""
    _, numbers = form_of(signature.call, signature.avals)
    changed = iter([n + more if n == size else n for n in numbers])
    avals = tuple(
        aval_of(tuple(next(changed) for _ in a.shape), a.dtype, weak=a.weak, device=a.device) for a in signature.avals
    )
    call = signature.call
    return Call(call.op, static_with(call, changed), call.device), avals


def sizes_of(signature):
    return sorted({n for n in form_of(signature.call, signature.avals)[1] if n > 1})


def grown(signature, size):
    """Signatures that differ in this size alone, each traced as it is; fewer where the row takes no such sizes."""
    found = []
    for more in GROWN:
        call, avals = resized(signature, size, more)
        try:
            found.append((call, avals, _infer(call, avals)))
        except WeftError:
            break
        general.forget_families()
    return found


def arrays_of(arrays, avals):
    """The arrays of a sample in other sizes; their elements again and again, so that indices stay within bounds."""
    return [np.resize(array, aval.shape) for array, aval in zip(arrays, avals, strict=True)]


def same(trace, expected, arrays):
    run, reference = prepare(trace), prepare(expected)
    if run is None or reference is None:
        return
    # BLAS adds the terms of a product in an order that may depend on how its matrices lie in memory.
    units = 256 if "dot_general" in str(expected.closed.jaxpr) else 0
    for a, b in zip(run(*arrays), reference(*arrays), strict=True):
        assert a.dtype == b.dtype
        tolerance = units * np.finfo(a.dtype).eps if a.dtype.kind in "fc" else 0
        a, b = np.asarray(a, np.complex128), np.asarray(b, np.complex128)
        largest = np.abs(b[np.isfinite(b)]).max(initial=0)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * largest)


@pytest.mark.parametrize("group", FIRST)
def test_rows(group, families):
    assert sum(generalised(families, p, s) for p in programs_of(group) for s in sizes_of(p.signature)[:1]) > 50


@pytest.mark.soak
@pytest.mark.parametrize("group", GROUPS)
def test_every_size_of_rows(group, families):
    assert sum(generalised(families, p, s) for p in programs_of(group) for s in sizes_of(p.signature)) > 50


def programs_of(group):
    for name in list(samples())[group :: len(GROUPS)]:
        yield from programs(samples()[name], (None,), derivatives=False)


def generalised(families, program, size):
    """Compare a program in some lengths of one size, traced with letters and as it is; how many had letters."""
    families.clear()
    concrete = grown(program.signature, size)
    if len(concrete) < len(GROWN):
        return 0
    families.clear()
    count = 0
    for call, avals, expected in concrete:
        signature = _infer(call, avals)
        assert [o.aval for o in signature.outputs] == [o.aval for o in expected.outputs], program.name
        if signature.general is None:
            continue
        count += 1
        arrays = arrays_of(program.arrays, avals)
        same(signature.trace, expected.trace, arrays)
        gradients_agree(signature, expected, arrays)
    return count


def gradients_agree(signature, expected, arrays):
    need = tuple(i for i, a in enumerate(signature.avals) if a.dtype.is_differentiable and not a.weak)
    smooth = [at for at, output in enumerate(signature.outputs[: signature.main]) if output.taped is not None]
    if not need or not smooth:
        return
    outputs = prepare(expected.trace)
    if outputs is None:
        return
    results = outputs(*arrays)
    for at in smooth[:1]:
        ours, reference = (derivative_of(s, need, (at,)) for s in (signature, expected))
        assert (ours.inputs, ours.outputs, ours.cotangents) == (
            reference.inputs,
            reference.outputs,
            reference.cotangents,
        )
        assert (ours.sources, ours.saves) == (reference.sources, reference.saves)
        if ours.signature is not None:
            operands = [*arrays, *results, results[at]]
            same(ours.signature.trace, reference.signature.trace, ours.pick(operands))


def test_a_size_is_a_letter_where_it_changes(families):
    for n in (3, 5, 7, 11):
        x = weft.ones(4, n, requires_grad=True)
        (x.softmax(1) * x).sum().backward()
        assert x.grad.shape == (4, n)
    softmax = next(family for form, family in families.items() if form[0].name == "softmax")
    assert len(softmax.examples) == 2
    assert len(softmax.patterns) == 1
    assert softmax.patterns[0].fixed[0] == (0, 4)


@pytest.mark.parametrize("odd", [0, 1, 4])
def test_what_a_letter_does_not_stand_for_is_traced_as_it_is(families, odd):
    """Sizes that are 0, 1, or equal to another."""
    for n in (3, 5, 7):
        (weft.ones(4, n) @ weft.ones(n, 2)).sum().item()
    family = next(family for form, family in families.items() if form[0].name == "matmul")
    before = len(family.examples)
    product = weft.ones(4, odd) @ weft.ones(odd, 2)
    assert product.tolist() == [[odd, odd]] * len(product)
    assert len(family.examples) == before + 1


def test_what_does_not_fit_is_refused_as_before(families):
    for n in (3, 5, 7):
        weft.ones(2, n) @ weft.ones(n, 2)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        weft.ones(2, 9) @ weft.ones(8, 2)
    for n in (12, 20, 28):
        weft.ones(n).view(4, n // 4)
    with pytest.raises(RuntimeError, match="shape '\\[4, 9\\]' is invalid for input of size 35"):
        weft.ones(35).view(4, 9)


def test_indices_are_checked_at_every_size(families):
    table = weft.ones(10, 3)
    for n in (4, 5, 6, 7):
        with pytest.raises(IndexError, match="out of range"):
            weft.nn.functional.embedding(weft.tensor([10] * n), table)


def test_nothing_of_the_caller_is_held(families):
    """Buffers are given away by counting references: tracing must not leave frames that hold some."""
    for n in (3, 5):
        weft.ones(n) + 1
    x = weft.ones(7)
    x.tolist()
    value = x._read()
    before = getrefcount(value)
    x + 1
    weft._lazy.flushing.flush_pending()
    assert getrefcount(value) == before


def test_a_body_that_branches_on_a_size_is_traced_for_each():
    family = Family([0])
    for n in (3, 5):
        family.add((n,), [((n,), np.float32)])

    def branches(sizes):
        (size,) = sizes
        return "general" if size > 10 else None

    assert family.find((7,), branches) is None
    assert family.find((9,), partial(pytest.fail, "it was refused")) is None
