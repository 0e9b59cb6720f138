from itertools import product

import jax
import numpy as np
import pytest

import weft as torch
from tests.native import formulas
from tests.native.formulas import close, draw
from weft import nn
from weft._base import config
from weft.errors import DTypeError, ShapeError, ValueRangeError
from weft.ops import optimizer as rows
from weft.ops import optimizer_adam as adam_rows
from weft.ops._kernels import optimizer

SHAPES = [(), (0,), (1,), (17, 3), (130, 257), (2, 0), (16,), (15,), (3, 5000), (7,)]  # tasks of many arrays, and more
AGES = [0, 2, 1, 0, 2, 2, 1, 0, 0, 1]
SGD_FACTORS = np.array([0.1, 0.9, 0.7, 0.01], np.float32)
ADAM_FACTORS = np.array(
    [[0.02, 0.1, 0.99, 0.01, 1e-8, 0.1, 0.2], [0.3, 0.2, 0.9, 0.1, 1e-3, 0.2, 0.5], [0.9, 0.5, 0.5, 0.5, 1e-2, 0.3, 1]],
    np.float32,
)
FLAGS = list(product([False, True], repeat=3))
SOME_FLAGS = [pytest.param(*flags, marks=[pytest.mark.soak] if at % 3 else []) for at, flags in enumerate(FLAGS)]
"""Those of which each flag has both values; the others are soaked."""


def column(seed, kept=True):
    return [draw(seed + at, *shape) for at, shape in enumerate(SHAPES)] if kept else []


def positive(seed, kept=True):
    return [np.abs(x) for x in column(seed, kept)]


def check(results, columns, rule, eps=3e-6):
    """`rule(i, arrays)` gives the new arrays of the i-th parameter, from those in float64, or None for a column."""
    expected = []
    for at in range(len(SHAPES)):
        expected.append(rule(at, [np.float64(arrays[at]) if arrays else None for arrays in columns]))
    assert len(results) == sum(map(len, expected))
    for at, new in enumerate(expected):
        for place, array in enumerate(new):
            close(results[place * len(SHAPES) + at], array, eps)


@pytest.mark.parametrize(("momentum", "nesterov", "maximize"), FLAGS)
def test_sgd(momentum, nesterov, maximize):
    columns = column(1), column(2), column(3, momentum)
    results = optimizer.sgd_step(*columns, SGD_FACTORS, nesterov=nesterov, maximize=maximize)
    factors = SGD_FACTORS.astype(np.float64)
    check(results, columns, lambda _, arrays: formulas.sgd_step(*arrays, factors, nesterov, maximize))


@pytest.mark.parametrize(("amsgrad", "decoupled", "maximize"), FLAGS)
def test_adam(amsgrad, decoupled, maximize):
    columns = column(1), column(2), column(3), positive(4), positive(5, amsgrad)
    results = optimizer.adam_step(*columns, ADAM_FACTORS, AGES, decoupled=decoupled, maximize=maximize)
    factors = ADAM_FACTORS.astype(np.float64)
    check(results, columns, lambda at, arrays: formulas.adam_step(*arrays, factors[AGES[at]], decoupled, maximize))


def test_nothing_to_update():
    assert optimizer.sgd_step([], [], [], SGD_FACTORS, nesterov=False, maximize=False) == []


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", range(5))
def test_special_values_stay_where_they_are(where, special):
    """In parameters, gradients, or any state; the largest of squares is NaN where any of them is."""
    if where >= 3 and special < 0:
        pytest.skip("no square is negative")
    columns = [column(1), column(2), column(3), positive(4), positive(5)]
    columns[where][4][7, 30:33] = special
    columns[where][3][-1, -1] = special  # in a part of a vector
    with np.errstate(invalid="ignore"):
        results = optimizer.adam_step(*columns, ADAM_FACTORS, AGES, decoupled=False, maximize=False)
        factors = ADAM_FACTORS.astype(np.float64)
        check(results, columns, lambda at, arrays: formulas.adam_step(*arrays, factors[AGES[at]], False, False))
        if where < 3:
            results = optimizer.sgd_step(*columns[:3], SGD_FACTORS, nesterov=True, maximize=False)
            check(results, columns[:3], lambda _, a: formulas.sgd_step(*a, SGD_FACTORS.astype(np.float64), True, False))


# --- against the rows' own bodies, with numbers that are traced -----------------------------------------------


def equal_but_for_contraction(results, expected):
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=2e-6, atol=1e-6)
        assert result.dtype == value.dtype


@pytest.mark.parametrize(("momentum", "nesterov", "maximize"), SOME_FLAGS)
def test_sgd_as_by_xla(momentum, nesterov, maximize):
    columns = column(1), column(2), column(3, momentum)

    def run(body):
        step = jax.jit(lambda columns, *numbers: body(*columns, *numbers, nesterov=nesterov, maximize=maximize))
        return step(columns, 0.1, 0.9, 0.3, np.float32(0.01))

    equal_but_for_contraction(run(optimizer._sgd), run(rows.sgd_step.impl))


@pytest.mark.parametrize(("amsgrad", "decoupled", "maximize"), SOME_FLAGS)
def test_adam_as_by_xla(amsgrad, decoupled, maximize):
    columns = column(1), column(2), column(3), positive(4), positive(5, amsgrad)
    flags = {"decoupled_weight_decay": decoupled, "maximize": maximize, "age": tuple(AGES)}

    def run(body):
        step = jax.jit(lambda columns, steps, *numbers: body(*columns, steps, *numbers, **flags))
        return step(columns, [np.float32(n) for n in (0, 3, 1000)], np.ones((1,)) * 1e-2, 0.9, 0.999, 1e-8, 0.1)

    equal_but_for_contraction(run(optimizer._adam), run(adam_rows.adam_step.impl))


# --- in place -------------------------------------------------------------------------------------------------


def sgd(params, grads, buffers):
    return optimizer.sgd_step(params, grads, buffers, SGD_FACTORS, nesterov=False, maximize=False)


def test_donated_arrays_are_overwritten_and_others_stay():
    columns = column(1), column(2), column(3)
    expected = [np.asarray(x) for x in sgd(*columns)]
    for donated in ((), (0,), (0, 2)):
        step = jax.jit(sgd, donate_argnums=donated)
        arrays = [[jax.numpy.array(x) for x in xs] for xs in columns]
        copies = step.lower(*arrays).compile().as_text().count("f32[130,257]{1,0} copy(")
        assert copies == 2 - len(donated)
        results = step(*arrays)
        assert all(np.array_equal(x, y) for x, y in zip(results, expected, strict=True))
        for at in {0, 1, 2} - set(donated):
            assert all(np.array_equal(x, y) for x, y in zip(arrays[at], columns[at], strict=True))


def test_results_may_lie_elsewhere():
    p, g = draw(1, 40000), draw(2, 40000)
    call = jax.ffi.ffi_call("weft_sgd_step", [jax.ShapeDtypeStruct(p.shape, p.dtype)])
    (result,) = call(SGD_FACTORS[None], p, g, age=np.zeros(1, np.int64), nesterov=False, maximize=False)
    assert np.array_equal(result, sgd([p], [g], [])[0])


# --- programs -------------------------------------------------------------------------------------------------


def trained(make, dtype=torch.float32):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 33), nn.Tanh(), nn.Linear(33, 5)).to(dtype)  # products too small for a kernel
    optimizer = make(model.parameters())

    @torch.compile
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for at in range(5):
        optimizer.param_groups[0]["lr"] = 0.1 / (at + 1)
        step(torch.randn(8, 40, dtype=dtype))
    state = [x for entry in optimizer.state.values() for x in entry.values()]
    return [x.detach().numpy() for x in (*model.parameters(), *state)]


MAKERS = {
    "SGD": lambda p: torch.optim.SGD(p),
    "momentum": lambda p: torch.optim.SGD(p, momentum=0.9, dampening=0.5, weight_decay=0.1),
    "Nesterov": lambda p: torch.optim.SGD(p, momentum=0.9, nesterov=True, maximize=True),
    "Adam": lambda p: torch.optim.Adam(p, weight_decay=0.1),
    "AMSGrad": lambda p: torch.optim.Adam(p, betas=(torch.tensor(0.8), torch.tensor([0.9])), amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p),
}


@pytest.mark.compiled
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ("momentum", "AMSGrad") else [pytest.mark.soak]) for name in MAKERS]
)
def test_modules_train_as_without_it(name, monkeypatch):
    results = trained(MAKERS[name])
    assert torch.explain()[-1].native
    monkeypatch.setattr(config, "NATIVE", False)
    for result, expected in zip(results, trained(MAKERS[name]), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.compiled
def test_other_types_are_left_to_xla():
    trained(MAKERS["AdamW"], torch.float64)
    assert not torch.explain()[-1].native


def test_few_elements_are_left_to_xla():
    def serves(*sizes):
        arrays = [jax.ShapeDtypeStruct((size,), np.float32) for size in sizes]
        return optimizer.SGD.serves(arrays, arrays, [], 0.1, 0, 0, 0, nesterov=False, maximize=False)

    assert serves(1000, 24)
    assert not serves(1000, 23)


# --- what is refused ------------------------------------------------------------------------------------------


def test_refused():
    p, flags = draw(1, 3, 4), {"nesterov": False, "maximize": False}
    with pytest.raises(ShapeError, match="sgd_step: expected 1 gradients, as many as parameters, got 2"):
        optimizer.sgd_step([p], [p, p], [], SGD_FACTORS, **flags)
    with pytest.raises(ShapeError, match=r"what belongs to a parameter has shape \(4, 3\), expected \(3, 4\)"):
        optimizer.sgd_step([p], [p], [p.T], SGD_FACTORS, **flags)
    with pytest.raises(ShapeError, match=r"expected rows of 4 factors, got \(1, 3\)"):
        optimizer.sgd_step([p], [p], [], SGD_FACTORS[:3], **flags)
    with pytest.raises(DTypeError, match="takes float32, got float64"):
        optimizer.sgd_step([p], [p.astype(np.float64)], [], SGD_FACTORS, **flags)
    flags = {"decoupled": False, "maximize": False}
    with pytest.raises(ShapeError, match="adam_step: expected 1 ages, as many as parameters, got 0"):
        optimizer.adam_step([p], [p], [p], [p], [], ADAM_FACTORS, [], **flags)
    with pytest.raises(ValueRangeError, match=r"expected ages below 3, got \(3,\)"):
        optimizer.adam_step([p], [p], [p], [p], [], ADAM_FACTORS, [3], **flags)


P, D = np.ones(6, np.float32), np.ones(6)
BAD_CALLS = {
    "as many gradients": ([P, P], [P], (0,), SGD_FACTORS[None]),
    "rows of 4 factors": ([P], [P, P], (0,), SGD_FACTORS),
    "is not that of any row": ([P], [P, P], (1,), SGD_FACTORS[None]),
    "a gradient is not float32": ([P], [P, D], (0,), SGD_FACTORS[None]),
    "a parameter or its state is not float32": ([P], [D, P], (0,), SGD_FACTORS[None]),
    "a gradient has not as many elements": ([P], [P, P[:5]], (0,), SGD_FACTORS[None]),
}


@pytest.mark.parametrize("text", BAD_CALLS)
def test_the_library_refuses_what_would_read_beyond_an_array(text):
    results, arguments, age, factors = BAD_CALLS[text]
    call = jax.ffi.ffi_call("weft_sgd_step", [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results])
    with pytest.raises(Exception, match=f"weft_native: .*{text}"):
        call(factors, *arguments, age=np.array(age, np.int64), nesterov=False, maximize=False)
