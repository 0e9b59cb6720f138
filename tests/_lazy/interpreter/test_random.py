"""Random numbers have the bits that compiled programs draw."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests._lazy.interpreter.check import Case, check
from weft._lazy.interpreter import missing
from weft.ops._draws import key_of_part

SEEDS = [np.int64(-1), np.int64(2**40 + 3), np.int32(-7), np.uint32(5)]


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 4, 5)], ids=str)
def test_bits(shape):
    check(
        [
            Case(f"{seed} {width}", lambda s, w=width: jax.random.bits(jax.random.key(s), shape, w), [seed])
            for seed in SEEDS
            for width in ("uint8", "uint16", "uint32", "uint64")
        ]
    )


def test_keys():
    def bits(key):
        return jax.random.bits(key, (2,))

    def many(seed):
        return jax.random.split(jax.random.key(seed), (2, 3))

    check(
        [
            Case("data", lambda s: jax.random.key_data(jax.random.key(s)), [SEEDS[1]]),
            Case("wrapped", lambda d: bits(jax.random.wrap_key_data(d)), [np.array([1, 2], np.uint32)]),
            Case("folded", lambda s, n: bits(jax.random.fold_in(jax.random.key(s), n)), [SEEDS[0], np.int64(-5)]),
            Case("split", lambda s: jax.random.key_data(many(s)), [SEEDS[0]]),
            Case("moved", lambda s: bits(jnp.stack([many(s)[1, 2], many(s)[0, 0]]).T.reshape(2, 1)[1, 0]), [SEEDS[0]]),
            Case("chosen", lambda s, i: bits(many(s)[i, 1]), [SEEDS[0], np.int32(1)]),
            Case("a batch", lambda s: jax.vmap(jax.vmap(bits))(many(s)), [SEEDS[0]]),
            Case(
                "in a loop",
                lambda s: jax.lax.scan(lambda k, _: (jax.random.split(k)[0], bits(k)), jax.random.key(s), length=3)[1],
                [SEEDS[0]],
            ),
            Case("raw", lambda s: jax.random.bits(jax.random.PRNGKey(s), (3,)), [SEEDS[0]]),
        ]
    )


def test_numbers():
    def drawn(name, *args):
        return Case(name, lambda s: getattr(jax.random, name)(jax.random.key(s), *args), [SEEDS[1]], 32, False)

    check(
        [
            *[drawn("uniform", (100,), t) for t in (np.float16, jnp.bfloat16, np.float32, np.float64)],
            *[drawn("normal", (100,), t) for t in (np.float32, np.float64, np.complex64)],
            *[drawn("randint", (100,), -7, 1000, t) for t in (np.int8, np.int32, np.int64, np.uint16)],
            drawn("categorical", np.log([0.2, 0.5, 0.3]), 0, (50,)),
            drawn("permutation", 50),
            drawn("bernoulli", 0.3, (100,)),
            drawn("exponential", (50,)),
            drawn("poisson", 3.0, (50,)),
            drawn("choice", 20, (5,), False),
        ]
    )


def test_parts_of_draws():
    """A part has the numbers of the whole, also of draws that split their key or fold it."""
    whole, part = (5, 2**20, 3), np.s_[3:5, 7:11, 1:3]
    first = np.uint64((3 * 2**20 + 7) * 3 + 1)

    def drawn(name, *args):
        def draw(seed, at):
            key = key_of_part(jax.random.key(seed), at, whole)
            return getattr(jax.random, name)(jax.random.fold_in(key, 3), *args)

        return Case(name, draw, [SEEDS[1], first], 32, False)

    check(
        [
            *[drawn("bits", (2, 4, 2), width) for width in ("uint16", "uint32", "uint64")],
            drawn("normal", (2, 4, 2), np.float32),
            drawn("uniform", (2, 2, 4, 2), np.float32),
        ]
    )
    key = jax.random.key(7)
    bits = jax.random.bits(key_of_part(key, jnp.asarray(first), whole), (2, 2, 4, 2))
    np.testing.assert_array_equal(bits, jax.random.bits(key, (2, *whole))[:, *part])
    with pytest.raises(TypeError, match="a key of a part is made from another key, not from the seed"):
        jax.random.key(7, impl=jax.random.key_impl(key_of_part(key, jnp.asarray(first), whole)))


def test_other_generators_are_compiled():
    closed = jax.make_jaxpr(lambda s: jax.random.bits(jax.random.key(s, impl="rbg")))(SEEDS[0])
    assert missing(closed) == {"random[key<rbg>]"}
