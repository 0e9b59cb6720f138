"""Every row of the operator table for several examples at once, and forward mode against reverse mode."""

from __future__ import annotations

import numpy as np
import pytest

from tests._lazy.interpreter.check import numbers
from tests._lazy.interpreter.rows import programs, samples
from weft._autograd.derive import derivative_of
from weft._autograd.forward import pushforward_of
from weft._base.state import ambient, using
from weft._lazy.batched import batched
from weft._lazy.reading import host_array
from weft._lazy.record import record
from weft._lazy.value import Value
from weft.errors import WeftError
from weft.ops._table import TABLE

ROWS = list(TABLE)
SMOOTH = [name for name in ROWS if TABLE[name].derivative.exists]


def computed(signature, arrays):
    """All outputs of a signature."""
    inputs = [
        Value(aval, array.item() if aval.weak else array) for aval, array in zip(signature.avals, arrays, strict=True)
    ]
    with using(grad=False):
        values = record(signature, tuple(inputs), ambient())
    return [host_array(value) for value in (*values, *(values[0].extras or ()))]


def attempted(signature, arrays):
    """All outputs, or the error for what the row refuses."""
    try:
        return computed(signature, arrays), None
    except WeftError as error:
        return None, error


def another(array):
    """A second example like a given one: numbers in another order, or a little smaller."""
    if array.dtype.kind in "iub":
        return array[::-1].copy() if array.ndim else array
    return (array * array.dtype.type(0.95)).astype(array.dtype)


def assert_near(result, expected, name):
    half = expected.dtype.kind not in "iubfc" or expected.dtype == np.float16
    single = expected.dtype in (np.float32, np.complex64)
    tolerance = 2e-2 if half else 2e-5 if single else 1e-9
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    size = np.abs(np.where(np.isfinite(expected.astype(wide)), expected.astype(wide), 0)).max(initial=1e-30)
    np.testing.assert_allclose(
        result.astype(wide) / size, expected.astype(wide) / size, rtol=tolerance, atol=tolerance, err_msg=name
    )


def check_batched(program, flags):
    """A program on two examples at once computes what it computes on each."""
    signature, first = program.signature, [np.asarray(array) for array in program.arrays]
    second = [another(array) if flag else array for array, flag in zip(first, flags, strict=True)]
    stacked = [np.stack(pair) if flag else pair[0] for *pair, flag in zip(first, second, flags, strict=True)]
    expected, errors = zip(*[attempted(signature, arrays) for arrays in (first, second)], strict=True)
    results, error = attempted(batched(signature, flags, 2), stacked)
    if any(errors):
        assert type(error) in map(type, errors)
        return
    assert error is None
    for at, result in enumerate(results):
        for example in range(2):
            assert_near(result[example], expected[example][at], f"{program.name}, output {at}")


def flags_of(signature, shared=()):
    return tuple(not aval.weak and at not in shared for at, aval in enumerate(signature.avals))


@pytest.mark.parametrize("name", ROWS)
def test_a_row_computes_several_examples(name):
    (program,) = programs(samples()[name], (None,), derivatives=False)
    flags = flags_of(program.signature)
    if any(flags):
        check_batched(program, flags)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:Casting from complex to real")  # rows are tried in types that have no meaning there
@pytest.mark.parametrize("name", ROWS)
def test_a_row_and_its_derivative_in_each_type_with_inputs_that_examples_share(name):
    for program in programs(samples()[name]):
        for shared in ((), (0,), (1,)):
            flags = flags_of(program.signature, shared)
            if any(flags):
                check_batched(program, flags)


def gradients(signature, arrays, cotangents, need, smooth):
    """The gradients of the inputs `need`, None where there is none."""
    outputs = computed(signature, arrays)
    derivative = derivative_of(signature, need, smooth)
    operands = derivative.pick([*arrays, *outputs, *cotangents])
    results = computed(derivative.signature, operands) if derivative.signature else ()
    return [source and (results if source[0] else cotangents)[source[1]] for source in derivative.sources]


def smooth_parts(signature):
    """The positions of inputs and of outputs between which gradients flow."""
    need = tuple(at for at, aval in enumerate(signature.avals) if aval.dtype.is_differentiable and not aval.weak)
    return need, tuple(at for at, output in enumerate(signature.outputs[: signature.main]) if output.taped is not None)


def check_gradients(name, shared=()):
    """Gradients for several examples at once are those for each, added up for what the examples share."""
    (program,) = programs(samples()[name], (None,), derivatives=False)
    signature, arrays = program.signature, [np.asarray(array) for array in program.arrays]
    flags, (need, smooth) = flags_of(signature, shared), smooth_parts(signature)
    outputs, error = attempted(signature, arrays)
    if not need or not smooth or not any(flags) or error is not None:
        return
    cotangents = [
        np.stack([numbers(outputs[at].dtype, *outputs[at].shape, seed=seed) for seed in (at, at + 9)]) for at in smooth
    ]
    stacked = [np.stack([array, array]) if flag else array for array, flag in zip(arrays, flags, strict=True)]
    together = gradients(batched(signature, flags, 2), stacked, cotangents, need, smooth)
    apart = [gradients(signature, arrays, [c[example] for c in cotangents], need, smooth) for example in range(2)]
    for at, result, first, second in zip(need, together, *apart, strict=True):
        if first is not None:
            assert_near(result, np.stack([first, second]) if flags[at] else first + second, f"{name}, input {at}")


@pytest.mark.parametrize("name", SMOOTH[2::4])
def test_a_row_has_the_gradients_of_each_example(name):
    check_gradients(name)


@pytest.mark.parametrize("name", ["mm", "layer_norm", "conv2d", "index", "prelu", "max_pool2d_with_indices", "where"])
def test_gradients_of_what_the_examples_share_are_added_up(name):
    for shared in ((0,), (1,)):
        check_gradients(name, shared)


@pytest.mark.soak
@pytest.mark.parametrize("name", SMOOTH)
def test_every_row_has_the_gradients_of_each_example(name):
    for shared in ((), (0,), (1,)):
        check_gradients(name, shared)


def check_directions(name):
    """`c·(J t)` is `(Jᵀ c)·t`."""
    (program,) = programs(samples()[name], (None,), derivatives=False)
    signature, arrays = program.signature, program.arrays
    need, smooth = smooth_parts(signature)
    outputs, error = attempted(signature, arrays)
    if not need or not smooth or error is not None:
        return
    cotangents = [numbers(outputs[at].dtype, *outputs[at].shape, seed=at + 1) for at in smooth]
    tangents = [numbers(np.asarray(arrays[at]).dtype, *np.shape(arrays[at]), seed=at + 5) for at in need]
    forward = pushforward_of(signature, need, smooth)
    operands = [arrays[at] for at in forward.inputs]
    operands += [outputs[at] for at in forward.outputs]
    operands += [tangents[at] for at in forward.tangents]
    pushed = computed(forward.signature, operands)
    pulled = gradients(signature, arrays, cotangents, need, smooth)
    left = sum(np.vdot(c, t).real for c, t in zip(cotangents, pushed, strict=True))
    right = sum(np.vdot(g, t).real for g, t in zip(pulled, tangents, strict=True) if g is not None)
    tolerance = 1e-3 if outputs[smooth[0]].dtype.itemsize <= 4 else 1e-8
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=1e-5)


@pytest.mark.parametrize("name", SMOOTH[::4])
def test_both_directions_agree(name):
    check_directions(name)


@pytest.mark.soak
@pytest.mark.parametrize("name", SMOOTH)
def test_both_directions_agree_in_every_row(name):
    check_directions(name)
