"""The workload `gpt2` in plain jax: float32 parameters, bfloat16 products, cuDNN's attention, AdamW; one program."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bench.workloads import GPT2, Run

_VOCABULARY, _D, _HEADS, _LAYERS, _LENGTH, _BATCH = GPT2
_Tree = dict[str, Any]


def _parameters(key: Any) -> _Tree:
    def normal(*shape: int) -> Any:
        nonlocal key
        key, now = jax.random.split(key)
        return 0.02 * jax.random.normal(now, shape)

    def layer() -> _Tree:
        return {
            "norm1": (normal(_D), normal(_D)),
            "norm2": (normal(_D), normal(_D)),
            "qkv": (normal(_D, 3 * _D), normal(3 * _D)),
            "out": (normal(_D, _D), normal(_D)),
            "up": (normal(_D, 4 * _D), normal(4 * _D)),
            "down": (normal(4 * _D, _D), normal(_D)),
        }

    return {
        "tokens": normal(_VOCABULARY, _D),
        "positions": normal(_LENGTH, _D),
        "layers": [layer() for _ in range(_LAYERS)],
        "norm": (normal(_D), normal(_D)),
    }


def _norm(x: Any, scale: Any, bias: Any) -> Any:
    x = x.astype(jnp.float32)
    x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * scale + bias


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    return x.astype(jnp.bfloat16) @ weight.astype(jnp.bfloat16) + bias.astype(jnp.bfloat16)


def _loss(p: _Tree, ids: Any, targets: Any) -> Any:
    x = p["tokens"][ids] + p["positions"]
    for layer in p["layers"]:
        parts = jnp.split(_linear(_norm(x, *layer["norm1"]), *layer["qkv"]), 3, axis=2)
        q, k, v = (part.reshape(_BATCH, _LENGTH, _HEADS, _D // _HEADS) for part in parts)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
        x = x + _linear(mixed.reshape(_BATCH, _LENGTH, _D), *layer["out"])
        x = x + _linear(jax.nn.gelu(_linear(_norm(x, *layer["norm2"]), *layer["up"])), *layer["down"])
    logits = _norm(x, *p["norm"]).astype(jnp.bfloat16) @ p["tokens"].astype(jnp.bfloat16).T
    logits = logits.astype(jnp.float32).reshape(-1, _VOCABULARY)
    taken = jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=1) - taken).mean()


@partial(jax.jit, donate_argnums=(0, 1, 2))
def _step(p: _Tree, m: _Tree, v: _Tree, count: Any, ids: Any, targets: Any) -> Any:
    """One step of AdamW."""
    loss, grads = jax.value_and_grad(_loss)(p, ids, targets)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
    c1, c2 = 1 - 0.9**count, 1 - 0.999**count
    p = jax.tree.map(lambda p, m, v: p - 3e-4 * (m / c1 / (jnp.sqrt(v / c2) + 1e-8) + 0.01 * p), p, m, v)
    return loss, p, m, v


def gpt2(_: Any) -> Run:
    """GPT-2 of 124 M parameters: a whole training step."""
    key = jax.random.key(0)
    parameters = _parameters(key)
    state = [parameters, *(jax.tree.map(jnp.zeros_like, parameters) for _ in range(2))]
    ids = jax.random.randint(key, (_BATCH, _LENGTH), 0, _VOCABULARY)
    targets = jax.random.randint(key, (_BATCH * _LENGTH,), 0, _VOCABULARY)
    count = 0

    def run() -> float:
        nonlocal count
        count += 1
        loss, *state[:] = _step(*state, float(count), ids, targets)
        return float(loss)

    return run
