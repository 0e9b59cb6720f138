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


def _windows(x, kernel, strides, padding, dilation):
    """A view of the padded input, (n, c, oh, ow, kh, kw), and the padded input."""
    x = np.pad(x, ((0, 0), (0, 0), *padding))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if any(size < span for size, span in zip(x.shape[2:], spans, strict=True)):
        return np.zeros((*x.shape[:2], 0, 0, *kernel)), x
    view = np.lib.stride_tricks.sliding_window_view(x, spans, (2, 3), writeable=True)
    return view[:, :, :: strides[0], :: strides[1], :: dilation[0], :: dilation[1]], x


def conv(x, w, *windows):
    return np.einsum("nchwij,ocij->nohw", _windows(x, w.shape[2:], *windows)[0], w)


def conv_input_gradient(g, w, x_shape, strides, padding, dilation):
    view, padded = _windows(np.zeros(x_shape), w.shape[2:], strides, padding, dilation)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            view[..., i, j] += np.einsum("nohw,oc->nchw", g, w[:, :, i, j])
    (top, _), (left, _) = padding
    return padded[:, :, top : top + x_shape[2], left : left + x_shape[3]]


def conv_weight_gradient(g, x, w_shape, *windows):
    return np.einsum("nchwij,nohw->ocij", _windows(x, w_shape[2:], *windows)[0], g)


def _by_channel(vector, ndim):
    return vector.reshape(-1, *(1,) * (ndim - 2))


def batch_norm(x, weight, bias, eps):
    rows = tuple(d for d in range(x.ndim) if d != 1)
    mean, variance = x.mean(rows), x.var(rows)
    rstd = 1 / np.sqrt(variance + eps)
    scale = _by_channel(rstd * weight, x.ndim)
    return (x - _by_channel(mean, x.ndim)) * scale + _by_channel(bias, x.ndim), mean, variance, rstd


def batch_norm_backward(g, x, weight, eps):
    rows = tuple(d for d in range(x.ndim) if d != 1)
    normal, _, _, rstd = batch_norm(x, np.ones_like(weight), np.zeros_like(weight), eps)
    g = g.astype(np.float64)
    tilt = normal * (g * normal).mean(rows, keepdims=True)
    dx = _by_channel(rstd * weight, x.ndim) * (g - g.mean(rows, keepdims=True) - tilt)
    return dx, (g * normal).sum(rows), g.sum(rows)


def _weights(q, k, causal, scale, mask):
    scores = np.einsum("bhtd,bhsd->bhts", q, k) * scale
    if causal:
        mask = np.tril(np.ones(scores.shape[2:], bool))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return e / np.where(total == 0, 1, total), np.log(total) + top


def attention(q, k, v, causal, scale, mask=None, kept=1.0):
    """`kept` is what the weights are multiplied by."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    p, lse = _weights(q, k, causal, scale, mask)
    return np.einsum("bhts,bhsd->bhtd", p * kept, v), lse


def attention_backward(g, q, k, v, causal, scale, mask=None, kept=1.0):
    heads, group = k.shape[1], q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    p, _ = _weights(q, k, causal, scale, mask)
    dp = np.einsum("bhtd,bhsd->bhts", g, v) * kept
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * scale
    dk, dv = np.einsum("bhts,bhtd->bhsd", ds, q), np.einsum("bhts,bhtd->bhsd", p * kept, g)
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
