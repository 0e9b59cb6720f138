"""The random bits that jax draws: threefry2x32 with counters that do not depend on how arrays are sharded.

A random key is represented as one number of 64 bits, with its two words of 32 bits adjacent in memory, so that the
primitives that move numbers also move keys.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import numpy as np

from weft._lazy.interpreter.table import (
    Array,
    Binary,
    Function,
    MissingPrimitive,
    Params,
    Types,
    Unary,
    is_key,
    primitive,
)

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def _hashed(key: tuple[Array, Array], counts: tuple[Array, Array]) -> tuple[Array, Array]:
    """Threefry with two words of 32 bits and 20 rounds (Salmon and others, 2011)."""
    words = (*key, key[0] ^ key[1] ^ _PARITY)
    x, y = counts[0] + words[0], counts[1] + words[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << np.uint32(rotation)) | (y >> np.uint32(32 - rotation))) ^ x
        x = x + words[(group + 1) % 3]
        y = y + words[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _words(keys: Array, ndim: int = 0) -> tuple[Array, Array]:
    """The first and the second words of keys, with `ndim` trailing dims of size 1 for what each key draws."""
    words = np.ascontiguousarray(keys)[..., None].view(np.uint32).reshape(*keys.shape, *(1,) * ndim, 2)
    return words[..., 0], words[..., 1]


def _keys(first: Array, second: Array) -> Array:
    return np.stack(np.broadcast_arrays(first, second), -1).view(np.uint64)[..., 0]


def _counters(shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The high and the low words of the numbers 0, 1, 2, … in arrays of this shape."""
    counts = np.arange(prod(shape), dtype=np.uint64).reshape(shape)
    return (counts >> np.uint64(32)).astype(np.uint32), counts.astype(np.uint32)


def _require_threefry(params: Params) -> None:
    kinds = {str(kind) for kind in params["keys"] if is_key(kind)}
    config: Any = jax.config
    if kinds != {"key<fry>"} or not config.jax_threefry_partitionable:
        raise MissingPrimitive(f"random[{', '.join(sorted(kinds))}]")


@primitive("threefry2x32")
def _threefry(params: Params, ins: Types, outs: Types) -> Function:
    return _threefry_of


def _threefry_of(k0: Array, k1: Array, x: Array, y: Array) -> tuple[Array, Array]:
    return _hashed((k0, k1), (x, y))


@primitive("random_wrap", view=True)
def _random_wrap(params: Params, ins: Types, outs: Types) -> Unary:
    _require_threefry(params)
    return lambda words: np.ascontiguousarray(words).view(np.uint64)[..., 0]


@primitive("random_unwrap", view=True)
def _random_unwrap(params: Params, ins: Types, outs: Types) -> Unary:
    _require_threefry(params)
    return lambda keys: np.ascontiguousarray(keys)[..., None].view(np.uint32).reshape(*keys.shape, 2)


@primitive("random_seed")
def _random_seed(params: Params, ins: Types, outs: Types) -> Function:
    _require_threefry(params)
    wide = ins[0].dtype.itemsize == 8

    def seed(seeds: Array) -> Array:
        low = seeds.astype(np.uint32)
        return _keys((seeds >> 32).astype(np.uint32) if wide else np.zeros_like(low), low)

    return seed


@primitive("random_fold_in")
def _random_fold_in(params: Params, ins: Types, outs: Types) -> Binary:
    _require_threefry(params)
    zero = np.zeros((), np.uint32)
    return lambda keys, data: _keys(*_hashed(_words(keys), (zero, data.astype(np.uint32))))


@primitive("random_split")
def _random_split(params: Params, ins: Types, outs: Types) -> Unary:
    _require_threefry(params)
    shape = tuple(params["shape"])
    return lambda keys: _keys(*_hashed(_words(keys, len(shape)), _counters(shape)))


@primitive("random_bits")
def _random_bits(params: Params, ins: Types, outs: Types) -> Function:
    _require_threefry(params)
    shape, dtype = tuple(params["shape"]), outs[0].dtype

    def bits(keys: Array) -> Array:
        high, low = _hashed(_words(keys, len(shape)), _counters(shape))
        if dtype.itemsize == 8:
            return (high.astype(np.uint64) << np.uint64(32)) | low
        return (high ^ low).astype(dtype)

    return bits
