"""Operators that draw random numbers. Each takes one key; the n-th draw depends on the seed and n alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from weft._base.dtype import COMPLEX, FLOAT, INTEGER
from weft.errors import DomainError, DTypeError, OutOfRangeError, ShapeError
from weft.ops._dims import Factors, Sizes, Static, broadcast_shapes, pointwise
from weft.ops._draws import each_element
from weft.ops._kinds import Array, DTypeArg, Key, Operand, Scalar, Shape
from weft.ops._rows import factory, require
from weft.ops._table import OWN_ARITHMETIC, Check, Public, Shards, defop
from weft.ops._type_names import c_name, scalar_name

_NORMAL = "normal_kernel_cpu"
_UNIFORM = "check_uniform_bounds"


def _like(value: Scalar, input: Array) -> Array:
    """A number in the element type of `input`."""
    return jnp.asarray(value).astype(input.dtype)


# Given a size


def _uniform(key: Key, size: Sizes, dtype: DTypeLike) -> Array:
    """Uniform numbers from [0, 1); for complex types, in both parts."""
    if not jnp.issubdtype(dtype, jnp.complexfloating):
        return jax.random.uniform(key, size, dtype)
    real = jnp.finfo(dtype).dtype
    return jax.lax.complex(*jax.random.uniform(key, (2, *size), real))


@factory(shards=Shards(drawn=each_element))
def rand(size: Shape, *, dtype: DTypeArg, key: Key) -> Array:
    """Uniform numbers from [0, 1)."""
    require(jnp.zeros((), dtype.numpy), _UNIFORM, FLOAT, COMPLEX)
    return _uniform(key, size, dtype.numpy)


@factory(shards=Shards(drawn=each_element))
def randn(size: Shape, *, dtype: DTypeArg, key: Key) -> Array:
    """Normal numbers with mean 0 and variance 1; for complex types, each part has variance 1/2."""
    require(jnp.zeros((), dtype.numpy), _NORMAL, FLOAT, COMPLEX)
    return jax.random.normal(key, size, dtype.numpy)


@factory(shards=Shards(drawn=each_element))
def normal_by_size(size: Shape, mean: Scalar, std: Scalar, *, dtype: DTypeArg, key: Key) -> Array:
    """Normal numbers."""
    require(jnp.zeros((), dtype.numpy), _NORMAL, FLOAT, COMPLEX)
    middle, spread = (jnp.asarray(x).astype(dtype.numpy) for x in (mean, std))
    return middle + spread * jax.random.normal(key, size, dtype.numpy)


@factory(shards=Shards(drawn=each_element))
def randint(size: Shape, low: Scalar, high: Scalar, *, dtype: DTypeArg, key: Key) -> Array:
    """Integers from [low, high), in any type."""
    first, last = (jnp.asarray(x).astype(jnp.int64) for x in (low, high))
    return jax.random.randint(key, size, first, last, jnp.int64).astype(dtype.numpy)


@factory()
def randperm(size: Shape, *, dtype: DTypeArg, key: Key) -> Array:
    """The integers below `size[0]` in random order."""
    return jax.random.permutation(key, size[0]).astype(dtype.numpy)


# Given tensors of parameters


def _probabilities(input: Array, p: Array | None) -> Array:
    if p is None:
        return input
    p = jnp.asarray(p)
    return p if jnp.issubdtype(p.dtype, jnp.inexact) else p.astype(jnp.float32)


def _bernoulli_check(input: Array, p: Operand | None) -> Array:
    odds = _probabilities(input, p)
    return ~((odds >= 0) & (odds <= 1))


@defop(
    types=OWN_ARITHMETIC,
    dims=pointwise,
    shards=Shards(drawn=each_element),
    check=Check(
        elements=_bernoulli_check, text="Expected p_in >= 0 && p_in <= 1 to be true, but got false.", error=DomainError
    ),
    public=Public(out=""),
)
def bernoulli(input: Array, p: Operand | None = None, *, key: Key) -> Array:
    """Ones with probability `p`, or with the probabilities in `input` when there is no `p`; else zeros."""
    if p is None:
        require(input, "bernoulli_tensor_cpu_p_", FLOAT)
    odds = jnp.broadcast_to(jax.lax.stop_gradient(_probabilities(input, p)), input.shape)
    return jax.random.bernoulli(key, odds).astype(input.dtype)


def _normal_sample_check(std: Operand) -> Array | None:
    return ~(std >= 0)


@defop(
    types=OWN_ARITHMETIC,
    dims=pointwise,
    shards=Shards(drawn=each_element),
    check=Check(elements=_normal_sample_check, text="normal expects all elements of std >= 0.0", error=DomainError),
    public=Public(function=False, method="", out=""),
)
def normal_sample(mean: Operand, std: Operand, *, dtype: DTypeArg, key: Key) -> Array:
    """Normal numbers; means and standard deviations are given by two tensors that broadcast."""
    require(jnp.zeros((), dtype.numpy), _NORMAL, FLOAT, COMPLEX)
    middle, spread = (jax.lax.stop_gradient(x).astype(dtype.numpy) for x in (mean, std))
    noise = jax.random.normal(key, broadcast_shapes(mean.shape, std.shape), dtype.numpy)
    return middle + spread * noise


def _rates_check(input: Array) -> Array:
    return ~(input >= 0)


@defop(
    types=OWN_ARITHMETIC,
    dims=pointwise,
    check=Check(
        elements=_rates_check, text="invalid Poisson rate, expected rate to be non-negative", error=DomainError
    ),
)
def poisson(input: Array, *, key: Key) -> Array:
    """Poisson numbers with the rates in `input`, in the type of `input`."""
    require(input, "poisson_cpu", FLOAT)
    rates = jax.lax.stop_gradient(input).astype(jnp.promote_types(input.dtype, jnp.float32))
    return jax.random.poisson(key, rates, dtype=jnp.int64).astype(input.dtype)


@defop(types=OWN_ARITHMETIC, dims=pointwise)
def binomial(count: Array, prob: Array, *, key: Key) -> Array:
    """The number of successes in `count` draws, each with probability `prob`."""
    require(count, "binomial_cpu", FLOAT)
    shape = broadcast_shapes(count.shape, prob.shape)
    return jax.random.binomial(key, *jax.lax.stop_gradient((count, prob)), shape, count.dtype)


def _samples(shapes: Sequence[Sizes]) -> Factors:
    """The last dim, of categories, is replaced by one of samples."""
    rows = tuple(range(len(shapes[0]) - 1))
    return Factors(((*rows, "choice"),), ((*rows, "sample"),), frozenset({"choice"}))


def _noise(shapes: Sequence[Sizes], static: Static) -> Sizes:
    return (*shapes[0][:-1], static["num_samples"]) if static["replacement"] else shapes[0]


def _multinomial_check(input: Array) -> Array:
    return ~((input >= 0) & (input < inf)) | (input.sum(-1, keepdims=True) <= 0)


_FEW_SAMPLES = 16


@defop(
    types=OWN_ARITHMETIC,
    dims=_samples,
    shards=Shards(drawn=_noise),
    check=Check(
        elements=_multinomial_check,
        text="probability tensor contains either `inf`, `nan` or element < 0, "
        "or is an invalid multinomial distribution (sum of probabilities <= 0)",
        error=DomainError,
    ),
)
def multinomial(input: Array, num_samples: int, replacement: bool = False, *, key: Key) -> Array:
    """Indices along the last dim, drawn with the weights in `input`, which need not sum to one; int64."""
    if input.ndim not in (1, 2):
        raise ShapeError("prob_dist must be 1 or 2 dim")
    if not jnp.issubdtype(input.dtype, jnp.floating):
        text = f"multinomial only supports floating-point dtypes for input, got: {scalar_name(input)}"
        raise DTypeError(text)
    if input.shape[-1] > 2**24:
        raise OutOfRangeError("number of categories cannot exceed 2^24")
    if num_samples <= 0:
        raise OutOfRangeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > input.shape[-1]:
        raise ShapeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    weights = jax.lax.stop_gradient(input).astype(jnp.promote_types(input.dtype, jnp.float32))
    if not replacement:  # the largest sums of log-weights and Gumbel noise are a sample without replacement
        noisy = jnp.log(weights) + jax.random.gumbel(key, weights.shape, weights.dtype)
        return jax.lax.top_k(noisy, num_samples)[1].astype(jnp.int64)
    sums = jnp.cumsum(weights, axis=-1)
    at = jax.random.uniform(key, (*weights.shape[:-1], num_samples), weights.dtype) * sums[..., -1:]
    # A loop that halves what is left takes longer than the sums, unless there are many to be found.
    method = "compare_all" if num_samples <= _FEW_SAMPLES else "scan"
    find = jnp.vectorize(partial(jnp.searchsorted, side="right", method=method), signature="(k),(n)->(n)")
    return find(sums, at).astype(jnp.int64)


# In-place fills: only the shape and the type of the input matter


_fill = partial(
    defop,
    types=OWN_ARITHMETIC,
    dims=pointwise,
    shards=Shards(drawn=each_element),
    public=Public(function=False, method="", inplace=True),
)
"""Decorator for a row that has only an in-place form."""


def _require_positive(text: str) -> Callable[..., None]:
    """A check of limits: the last number must be positive."""

    def limits(*scalars: Scalar) -> None:
        if scalars[-1] <= 0:
            raise OutOfRangeError(text.format(scalars[-1]))

    return limits


def _require_continuous(input: Array, name: str, word: str) -> None:
    if not jnp.issubdtype(input.dtype, jnp.floating):
        raise DTypeError(
            f"{name} distribution is a continuous probability distribution. "
            f"dtype must be a floating point but you specified {word}"
        )


@_fill(public=Public(function=False, method="", inplace=False))
def uniform(input: Array, from_: Scalar = 0.0, to: Scalar = 1.0, *, key: Key) -> Array:
    """Uniform numbers from [from_, to)."""
    require(input, _UNIFORM, FLOAT, COMPLEX)
    first, last = _like(from_, input), _like(to, input)
    return first + (last - first) * _uniform(key, input.shape, input.dtype)


@_fill(check=Check(limits=_require_positive("log_normal_ expects std > 0.0, but found std={}")))
def log_normal(input: Array, mean: Scalar = 1.0, std: Scalar = 2.0, *, key: Key) -> Array:
    """Numbers whose logarithms are normal."""
    require(input, "log_normal_cpu", FLOAT)
    noise = jax.random.normal(key, input.shape, input.dtype)
    return jnp.exp(_like(mean, input) + _like(std, input) * noise)


@_fill(check=Check(limits=_require_positive("cauchy_ expects sigma > 0.0, but found sigma={}")))
def cauchy(input: Array, median: Scalar = 0.0, sigma: Scalar = 1.0, *, key: Key) -> Array:
    """Cauchy numbers."""
    _require_continuous(input, "Cauchy", c_name(input))
    noise = jax.random.cauchy(key, input.shape, input.dtype)
    return _like(median, input) + _like(sigma, input) * noise


@_fill(check=Check(limits=_require_positive("exponential_ expects lambda > 0.0, but found lambda={}")))
def exponential(input: Array, lambd: Scalar = 1.0, *, key: Key) -> Array:
    """Exponential numbers with rate `lambd`."""
    _require_continuous(input, "Exponential", scalar_name(input))
    return jax.random.exponential(key, input.shape, input.dtype) / _like(lambd, input)


def _require_odds(p: Scalar) -> None:
    if not 0 < p < 1:
        raise OutOfRangeError(f"geometric_ expects p to be in (0, 1), but got p={p}")


@_fill(check=Check(limits=_require_odds))
def geometric(input: Array, p: Scalar, *, key: Key) -> Array:
    """The number of draws up to the first success, included, each with probability `p`."""
    require(input, "geometric_cpu", INTEGER, FLOAT)
    odds = jnp.asarray(p).astype(jnp.float64)
    return jax.random.geometric(key, odds, input.shape, jnp.int64).astype(input.dtype)
