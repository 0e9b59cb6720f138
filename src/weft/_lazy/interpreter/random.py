"""The random bits that jax draws: threefry2x32 with counters that do not depend on how arrays are sharded.

A random key is represented as one number of 64 bits, with its two words of 32 bits adjacent in memory, so that the
primitives that move numbers also move keys. A key that draws a part of an array has two words more, of the position of
the part's first element (`ops/_draws.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import jax
import numpy as np

from weft._base.types import Arg
from weft._lazy.interpreter.table import (
    Array,
    Binary,
    Function,
    MissingPrimitive,
    Params,
    Types,
    Unary,
    dense,
    is_key,
    primitive,
)
from weft.ops._dims import Sizes
from weft.ops._draws import drawn_sizes, steps_of

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def _hashed(key: tuple[Arg, Arg], counts: tuple[Arg, Arg]) -> tuple[Array, Array]:
    """Threefry with two words of 32 bits and 20 rounds (Salmon and others, 2011)."""
    for word in (*key, *counts):
        if not isinstance(word, (np.ndarray, np.generic)):
            return word.hashed(*key, *counts)  # a probe, which stands for this in one step
    words = (*key, key[0] ^ key[1] ^ _PARITY)
    x, y = counts[0] + words[0], counts[1] + words[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))) ^ x
        x = x + words[(group + 1) % 3]
        y = y + words[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _words(keys: Array, ndim: int = 0) -> tuple[tuple[Array, Array], list[Array]]:
    """The two words of keys, and what follows, with `ndim` trailing dims of size 1 for what each key draws."""
    words = dense(keys)[..., None].view(np.uint32).reshape(*keys.shape, *(1,) * ndim, -1)
    first, second, *place = np.moveaxis(words, -1, 0)
    return (first, second), place


def _keys(pair: tuple[Array, Array], place: Sequence[Array] = ()) -> Array:
    parts = *pair, *place
    words = np.empty_like(pair[0], np.uint32, shape=(*pair[0].shape, len(parts)))
    for at, part in enumerate(parts):
        words[..., at] = part
    return words.view((np.void, 4 * len(parts)) if place else np.uint64)[..., 0]


def _halves(numbers: Array) -> tuple[Array, Array]:
    """The high and the low words."""
    return (numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32)


def _joined(high: Array, low: Array) -> Array:
    return (high.astype(np.uint64) << np.uint64(32)) | low


def _counters(shape: tuple[int, ...]) -> Array:
    """The numbers 0, 1, 2, … in an array of this shape."""
    return np.arange(prod(shape), dtype=np.uint64).reshape(shape)


def _positions(shape: tuple[int, ...], sizes: Sizes) -> Array:
    """The positions of the elements of a part in an array of these sizes, from that of the first element on."""
    result = np.zeros(shape, np.uint64)
    for dim, step in enumerate(steps_of(shape, sizes)):
        length = shape[dim]
        along = np.arange(length, dtype=np.uint64) * np.uint64(step)
        result += along.reshape(length, *(1,) * (len(shape) - dim - 1))
    return result


def _require_threefry(params: Params) -> None:
    kinds = {str(kind) for kind in params["keys"] if is_key(kind) and drawn_sizes(kind) is None} - {"key<fry>"}
    config: Arg = jax.config
    if kinds or not config.jax_threefry_partitionable:
        raise MissingPrimitive(f"random[{', '.join(sorted(kinds))}]")


@primitive("threefry2x32")
def _threefry(params: Params, ins: Types, outs: Types) -> Function:
    return _threefry_of


def _threefry_of(k0: Array, k1: Array, x: Array, y: Array) -> tuple[Array, Array]:
    return _hashed((k0, k1), (x, y))


@primitive("random_wrap", view=True)
def _random_wrap(params: Params, ins: Types, outs: Types) -> Unary:
    _require_threefry(params)
    return lambda words: dense(words).view(outs[0].dtype)[..., 0]


@primitive("random_unwrap", view=True)
def _random_unwrap(params: Params, ins: Types, outs: Types) -> Unary:
    _require_threefry(params)
    return lambda keys: dense(keys)[..., None].view(np.uint32).reshape(*keys.shape, -1)


@primitive("random_seed")
def _random_seed(params: Params, ins: Types, outs: Types) -> Function:
    _require_threefry(params)
    wide = ins[0].dtype.itemsize == 8

    def seed(seeds: Array) -> Array:
        low = seeds.astype(np.uint32)
        return _keys(((seeds >> 32).astype(np.uint32) if wide else np.zeros_like(low), low))

    return seed


@primitive("random_fold_in")
def _random_fold_in(params: Params, ins: Types, outs: Types) -> Binary:
    _require_threefry(params)
    zero = np.zeros((), np.uint32)

    def folded(keys: Array, data: Array) -> Array:
        words, place = _words(keys)
        return _keys(_hashed(words, (zero, data.astype(np.uint32))), place)

    return folded


@primitive("random_split")
def _random_split(params: Params, ins: Types, outs: Types) -> Unary:
    _require_threefry(params)
    shape = tuple(params["shape"])

    def split(keys: Array) -> Array:
        words, place = _words(keys, len(shape))
        return _keys(_hashed(words, _halves(_counters(shape))), place)

    return split


@primitive("random_bits")
def _random_bits(params: Params, ins: Types, outs: Types) -> Function:
    _require_threefry(params)
    shape, dtype = tuple(params["shape"]), outs[0].dtype
    sizes = drawn_sizes(params["keys"][0])

    def bits(keys: Arg) -> Array:
        if type(keys) is not np.ndarray and keys.dtype.itemsize == 8 and not keys.ndim:
            return keys.drawn(shape, dtype)  # a probe, which stands for this in one step
        words, place = _words(keys, len(shape))
        counters = _counters(shape) if sizes is None else _positions(shape, sizes) + _joined(*place)
        high, low = _hashed(words, _halves(counters))
        return _joined(high, low) if dtype.itemsize == 8 else (high ^ low).astype(dtype)

    return bits
