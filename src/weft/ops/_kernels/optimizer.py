"""Steps of SGD and of Adam for all parameters of a group at once, by kernels of our own on the CPU.

XLA updates each parameter by loops of its own. A call that takes all gradients also comes after the whole backward
pass, so no parameter has to be copied before it is overwritten.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence

import jax.ffi
import jax.numpy as jnp
import numpy as np

from weft._base.types import Arg
from weft.errors import ShapeError, ValueRangeError
from weft.ops._kernels.library import Array, is_float32, require_floats, require_shape, struct_like
from weft.ops._kinds import Arrays, Scalar
from weft.ops._native import LEAST_DONATION, Native
from weft.ops._updates import bias_left, double, older

_LEAST = 1 << 10  # elements of all parameters, from which on a call is worth it


def sgd_step(
    params: Arrays, grads: Arrays, buffers: Arrays, factors: Array, *, nesterov: bool, maximize: bool
) -> list[Array]:
    """The new parameters, then the new momentum buffers, of which there may be none; all float32.

    `factors` (4,) are the learning rate, the momentum, 1 - dampening, and the weight decay.
    """
    states, age = [buffers] if buffers else [], [0] * len(params)
    return _step("sgd_step", params, grads, states, factors[None], 4, age, nesterov=nesterov, maximize=maximize)


def adam_step(
    params: Arrays,
    grads: Arrays,
    means: Arrays,
    squares: Arrays,
    peaks: Arrays,
    factors: Array,
    age: Sequence[int],
    *,
    decoupled: bool,
    maximize: bool,
) -> list[Array]:
    """The new parameters, means, means of squares, and largest of these, of which there may be none; all float32.

    `factors` (ages, 7) are the weight decay, 1 - beta1, beta2, 1 - beta2, eps, lr / (1 - beta1^n) and
    sqrt(1 - beta2^n), and `age[i]` is the row for parameter `i`. A decay that is `decoupled` is what the parameter is
    multiplied by.
    """
    states = [means, squares, peaks] if peaks else [means, squares]
    return _step("adam_step", params, grads, states, factors, 7, age, decoupled=decoupled, maximize=maximize)


def _step(
    operation: str,
    params: Arrays,
    grads: Arrays,
    states: Sequence[Arrays],
    factors: Array,
    width: int,
    age: Sequence[int],
    **flags: bool,
) -> list[Array]:
    """A kernel's results, which overwrite the parameters and their states.

    XLA would first copy what the program may not overwrite, so small arrays have results of their own.
    """
    count = len(params)
    for name, arrays in (("gradients", grads), *(("arrays of a state", arrays) for arrays in states), ("ages", age)):
        if len(arrays) != count:
            raise ShapeError(f"{operation}: expected {count} {name}, as many as parameters, got {len(arrays)}")
    for column in (grads, *states):
        for param, array in zip(params, column, strict=True):
            require_shape(operation, "what belongs to a parameter", array, param.shape)
    if factors.ndim != 2 or factors.shape[1] != width:
        raise ShapeError(f"{operation}: expected rows of {width} factors, got {factors.shape}")
    if not all(0 <= row < len(factors) for row in age):
        raise ValueRangeError(f"{operation}: expected ages below {len(factors)}, got {tuple(age)}")
    if not count:
        return []
    kept = [array for column in (params, *states) for array in column]
    require_floats(operation, factors, *kept, *grads)
    in_place = [at for at, array in enumerate(kept) if array.size * array.dtype.itemsize >= LEAST_DONATION]
    call = jax.ffi.ffi_call(
        f"weft_{operation}",
        [struct_like(array.shape, array) for array in kept],
        input_output_aliases={at + (1 if at < count else 1 + count): at for at in in_place},  # gradients are not kept
    )
    return list(call(factors, *params, *grads, *kept[count:], age=np.array(age, np.int64), **flags))


# --- bodies of rows of the table ------------------------------------------------------------------------------


def _serves(arrays: Sequence[Arrays], numbers: Sequence[Scalar]) -> bool:
    """Whether the kernels take these parameters, gradients and states, and these numbers, each of one element."""
    is_plain = all(getattr(number, "size", 1) == 1 for number in numbers)
    is_large = sum(param.size for param in arrays[0]) >= _LEAST
    return is_plain and is_large and is_float32(*(array for column in arrays for array in column))


def _factors(*numbers: Scalar) -> Array:
    """Numbers as a vector, computed in float64 and rounded once."""
    return jnp.stack([double(number).reshape(()) for number in numbers]).astype(jnp.float32)


def _serves_sgd(params: Arrays, grads: Arrays, momentum_buffer: Arrays, *numbers: Scalar, **flags: Arg) -> bool:
    del flags
    return _serves((params, grads, momentum_buffer), numbers)


def _sgd(
    params: Arrays,
    grads: Arrays,
    momentum_buffer: Arrays,
    lr: Scalar,
    momentum: Scalar,
    dampening: Scalar,
    weight_decay: Scalar,
    *,
    nesterov: bool,
    maximize: bool,
) -> list[Array]:
    factors = _factors(lr, momentum, 1 - double(dampening), weight_decay)
    return sgd_step(params, grads, momentum_buffer, factors, nesterov=nesterov, maximize=maximize)


def _serves_adam(
    params: Arrays,
    grads: Arrays,
    exp_avg: Arrays,
    exp_avg_sq: Arrays,
    max_exp_avg_sq: Arrays,
    step: Arrays,
    *numbers: Scalar,
    **flags: Arg,
) -> bool:
    del step, flags
    return _serves((params, grads, exp_avg, exp_avg_sq, max_exp_avg_sq), numbers)


def _adam(
    params: Arrays,
    grads: Arrays,
    exp_avg: Arrays,
    exp_avg_sq: Arrays,
    max_exp_avg_sq: Arrays,
    step: Arrays,
    lr: Scalar,
    beta1: Scalar,
    beta2: Scalar,
    eps: Scalar,
    weight_decay: Scalar,
    *,
    decoupled_weight_decay: bool,
    maximize: bool,
    age: tuple[int, ...],
) -> list[Array]:
    counts = older(step)
    decay = 1 - double(lr) * weight_decay if decoupled_weight_decay else weight_decay
    numbers = (decay, 1 - double(beta1), beta2, 1 - double(beta2), eps)
    rows = [_factors(*numbers, double(lr) / bias_left(beta1, n), jnp.sqrt(bias_left(beta2, n))) for n in counts]
    new = adam_step(
        params,
        grads,
        exp_avg,
        exp_avg_sq,
        max_exp_avg_sq,
        jnp.stack(rows),
        age,
        decoupled=decoupled_weight_decay,
        maximize=maximize,
    )
    return new + counts


SGD = Native("cpu", _serves_sgd, _sgd)
ADAM = Native("cpu", _serves_adam, _adam)
