"""What the kernels compute, in NumPy's float64."""

from __future__ import annotations

import numpy as np


def draw(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(result, expected, eps=3e-5):
    """Equal but for rounding, relative to the largest element, with equal infinities and NaN."""
    result, expected = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    assert result.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.where(finite, 0, result), np.where(finite, 0, expected))
    bound = eps * max(1.0, np.abs(expected[finite]).max(initial=0))
    np.testing.assert_allclose(result[finite], expected[finite], rtol=0, atol=bound)


def _taps(x, kernel, strides, padding, dilation):
    """For each tap of the kernel, its index and a view of the padded input, (n, c, …); and the padded input."""
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    counts = [max(0, (size - span) // s + 1) for size, span, s in zip(x.shape[2:], spans, strides, strict=True)]
    taps = []
    for tap in np.ndindex(*kernel):
        starts = [i * d for i, d in zip(tap, dilation, strict=True)]
        ends = [a + max(0, (c - 1) * s + 1) if c else a for a, c, s in zip(starts, counts, strides, strict=True)]
        view = tuple(slice(a, b, s) for a, b, s in zip(starts, ends, strides, strict=True))
        taps.append(((slice(None), slice(None), *tap), x[(slice(None), slice(None), *view)]))
    return taps, x


def _grouped(x, groups, axis):
    """The dim of channels as (groups, channels of each)."""
    each = x.shape[axis] // groups
    return x.reshape(*x.shape[:axis], groups, each, *x.shape[axis + 1 :])


def conv(x, w, *windows):
    groups = x.shape[1] // w.shape[1] if w.shape[1] else 1
    y = 0.0
    for tap, part in _taps(x, w.shape[2:], *windows)[0]:
        y = y + np.einsum("ngc...,goc->ngo...", _grouped(part, groups, 1), _grouped(w[tap], groups, 0))
    return y.reshape(y.shape[0], w.shape[0], *y.shape[3:])


def conv_input_gradient(g, w, x_shape, strides, padding, dilation):
    groups = x_shape[1] // w.shape[1] if w.shape[1] else 1
    taps, padded = _taps(np.zeros(x_shape), w.shape[2:], strides, padding, dilation)
    for tap, part in taps:
        part += np.einsum("ngo...,goc->ngc...", _grouped(g, groups, 1), _grouped(w[tap], groups, 0)).reshape(part.shape)
    inner = tuple(slice(a, a + size) for (a, _), size in zip(padding, x_shape[2:], strict=True))
    return padded[(slice(None), slice(None), *inner)]


def conv_weight_gradient(g, x, w_shape, *windows):
    groups = x.shape[1] // w_shape[1] if w_shape[1] else 1
    dw, letters = np.zeros(w_shape), "xyz"[: x.ndim - 2]
    for tap, part in _taps(x, w_shape[2:], *windows)[0]:
        each = np.einsum(f"ngc{letters},ngo{letters}->goc", _grouped(part, groups, 1), _grouped(g, groups, 1))
        dw[tap] = each.reshape(w_shape[:2])
    return dw


def _weights(q, k, causal, scale):
    scores = np.einsum("bhtd,bhsd->bhts", q, k) * scale
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[2:], bool)), scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return e / total, np.log(total) + top


def attention(q, k, v, causal, scale):
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    p, lse = _weights(q, k, causal, scale)
    return np.einsum("bhts,bhsd->bhtd", p, v), lse


def attention_backward(g, q, k, v, causal, scale):
    heads, group = k.shape[1], q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    p, _ = _weights(q, k, causal, scale)
    dp = np.einsum("bhtd,bhsd->bhts", g, v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
    dk, dv = np.einsum("bhts,bhtd->bhsd", ds, q), np.einsum("bhts,bhtd->bhsd", p, g)
    dk, dv = (x.reshape(x.shape[0], heads, group, *x.shape[2:]).sum(2) for x in (dk, dv))
    return np.einsum("bhts,bhsd->bhtd", ds, k), dk, dv


def _sigmoid(x):
    return 0.5 * np.tanh(0.5 * x) + 0.5


def lstm(z, h0, c0, wh, reverse):
    """Hidden states, cells and gates."""
    steps = [np.zeros((*z.shape[:2], size)) for size in (h0.shape[1], h0.shape[1], z.shape[2])]
    h, c = h0, c0
    for t in reversed(range(len(z))) if reverse else range(len(z)):
        i, f, g, o = np.split(z[t] + h @ wh.T, 4, -1)
        i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        c = f * c + i * g
        h = o * np.tanh(c)
        steps[0][t], steps[1][t], steps[2][t] = h, c, np.concatenate([i, f, g, o], -1)
    return steps


def lstm_backward(g_ys, g_h, g_c, gates, cells, c0, wh, reverse):
    dz, dh, dc = np.zeros_like(gates), g_h, g_c
    order = list(range(len(gates)))[:: 1 if reverse else -1]
    for n, t in enumerate(order):
        i, f, g, o = np.split(gates[t], 4, -1)
        before = cells[order[n + 1]] if n + 1 < len(order) else c0
        dh, tanh = dh + g_ys[t], np.tanh(cells[t])
        dc = dc + dh * o * (1 - tanh**2)
        parts = [dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g**2), dh * tanh * o * (1 - o)]
        dz[t] = np.concatenate(parts, -1)
        dh, dc = dz[t] @ wh, dc * f
    return dz, dh, dc
