"""Parts of random draws: keys with which `jax.random` draws a part of an array, with the numbers of the whole.

Threefry hashes a key and a counter; the counter of an element is its position in the whole array (in row-major order).
So the numbers of a part follow from the key and from where the part lies, and nothing else needs to be drawn.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl, threefry2x32_p, threefry_prng_impl
from jax.typing import DTypeLike

from weft.ops._dims import Sizes, Static, broadcast_shapes

_WORD = np.uint64(32)  # bits
# no cell: a cache, keyed by all that its entries depend on
_sizes: dict[str, Sizes] = {}
_threefry: Any = threefry2x32_p


def each_element(shapes: Sequence[Sizes], static: Static) -> Sizes:
    """For random rows that draw one array of the size of the result."""
    return broadcast_shapes(*shapes) if shapes else static["size"]


def strides_of(sizes: Sizes) -> tuple[int, ...]:
    """How far elements that are neighbours along each dim lie apart in an array of these sizes."""
    return tuple([prod(sizes[dim + 1 :]) for dim in range(len(sizes))])


def drawn_sizes(dtype: DTypeLike) -> Sizes | None:
    """The sizes of the whole array of which keys of this type draw a part; None for all other keys."""
    return _sizes.get(str(dtype))


def key_of_part(key: jax.Array, first: jax.Array, sizes: Sizes) -> jax.Array:
    """A key that draws, in an array of any shape, a part of what `key` draws in one of `sizes`.

    `first` is the position of the part's first element. Draws with further dims in front have so many whole arrays.
    """
    data = jnp.concatenate([jax.random.key_data(key), jnp.stack(_words(first.astype(jnp.uint64)))])
    return _key(data, _generator(sizes))


def steps_of(shape: Sizes, sizes: Sizes) -> list[int]:
    """For each dim of a part with this shape, by how much positions in the whole array grow along it."""
    ahead = len(shape) - len(sizes)
    return [prod(sizes) * step for step in strides_of(shape[:ahead])] + list(strides_of(sizes))


def _words(numbers: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The high and the low 32 bits."""
    return (numbers >> _WORD).astype(jnp.uint32), numbers.astype(jnp.uint32)


def _joined(high: jax.Array, low: jax.Array) -> jax.Array:
    return (high.astype(jnp.uint64) << _WORD) | low.astype(jnp.uint64)


@cache
def _generator(sizes: Sizes) -> Hashable:
    """The kind of keys for parts of an array of these sizes: the two words of a key, and two of the first position."""

    def random_bits(key: jax.Array, width: int, shape: Sizes) -> jax.Array:
        at = jnp.broadcast_to(_joined(key[2], key[3]), shape)
        for dim, step in enumerate(steps_of(shape, sizes)):
            along = jnp.arange(shape[dim], dtype=jnp.uint64) * np.uint64(step)
            at = at + along.reshape(-1, *(1,) * (len(shape) - dim - 1))
        words: Sequence[jax.Array] = _threefry.bind(key[0], key[1], *_words(at))
        high, low = words
        return _joined(high, low) if width == 64 else (high ^ low).astype(f"uint{width}")

    kind = f"fry in {list(sizes)}"
    _sizes[f"key<{kind}>"] = sizes
    return define_prng_impl(
        key_shape=(4,), seed=_seed, split=_split, random_bits=random_bits, fold_in=_fold_in, name=kind, tag=kind
    )


def _seed(seed: object) -> jax.Array:
    raise TypeError(f"a key of a part is made from another key, not from the seed {seed}")


def _split(key: jax.Array, shape: Sizes) -> jax.Array:
    return _placed(jax.random.split(_ordinary(key), shape), key)


def _fold_in(key: jax.Array, data: int) -> jax.Array:
    return _placed(jax.random.fold_in(_ordinary(key), data), key)


def _ordinary(key: jax.Array) -> jax.Array:
    return _key(key[:2], threefry_prng_impl)


def _key(data: jax.Array, kind: Any) -> jax.Array:
    wrap: Any = jax.random.wrap_key_data
    return wrap(data, impl=kind)


def _placed(keys: jax.Array, key: jax.Array) -> jax.Array:
    """Ordinary keys as keys of the same part as `key`."""
    data = jax.random.key_data(keys)
    return jnp.concatenate([data, jnp.broadcast_to(key[2:], data.shape)], -1)
