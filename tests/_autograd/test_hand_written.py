"""A row's hand-written derivative: the one that jax derives from the row's body."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from tests._lazy.interpreter.check import numbers
from tests._lazy.interpreter.rows import programs, samples
from weft.ops._table import TABLE

UNLIKE_JAX = {
    "batch_norm_train": "none through the running statistics",
    "carry": "to the tensor whose data was replaced",
    "ctc_losses": "as if the input were normalised, as PyTorch's",
    "fake_quantize_affine": "straight through the rounding",
    "index_copy": "to each of several values for one index, as PyTorch's",
    "index_put": "to each of several values for one index, as PyTorch's",
    "max_unpool": "to each of several values for one index, as PyTorch's",
    "nextafter": "its body has none",
    "put": "to each of several values for one index, as PyTorch's",
    "scatter_src": "to each of several values for one index, as PyTorch's",
}
"""Rows whose derivative is not that of the body, by intent, and how it differs."""

ROWS = [name for name, op in TABLE.items() if op.derivative.vjp is not None and name not in UNLIKE_JAX]


@pytest.mark.parametrize("name", ROWS)
def test_it_is_that_of_the_body(name):
    (program,) = programs(samples()[name], (None,), derivatives=False)
    signature = program.signature
    smooth = [at for at, output in enumerate(signature.outputs[: signature.main]) if output.taped is not None]
    need = [at for at, aval in enumerate(signature.avals) if aval.dtype.is_differentiable and not aval.weak]
    assert smooth
    assert need

    @jax.jit
    def both(arrays, cotangents):
        outputs = signature.fn(*arrays)
        by_hand = signature.derivatives.grads(
            arrays,
            outputs,
            tuple(cotangents.get(at, jax.numpy.zeros_like(outputs[at])) for at in range(signature.main)),
        )

        def body(*inputs):
            full = list(arrays)
            for at, value in zip(need, inputs, strict=True):
                full[at] = value
            results = signature.fn(*full)
            return [results[at] for at in smooth]

        _, pull = jax.vjp(body, *(arrays[at] for at in need))
        return [by_hand[at] for at in need], pull([cotangents[at] for at in smooth])

    cotangents = {at: numbers(np.float64, *signature.outputs[at].aval.shape, seed=at) for at in smooth}
    by_hand, derived = both(list(program.arrays), cotangents)
    for at, found, expected in zip(need, by_hand, derived, strict=True):
        if found is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=f"input {at}")
        else:
            np.testing.assert_array_equal(expected, 0, err_msg=f"input {at}")
