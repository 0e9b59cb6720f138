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


def layer_norm(x, weight, bias, eps):
    """The result, the mean and the reciprocal deviation."""
    mean = x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt(np.square(x - mean).mean(-1, keepdims=True) + eps)
    return (x - mean) * rstd * weight + bias, mean, rstd


def layer_norm_backward(g, x, mean, rstd, weight):
    normal, weighted = (x - mean) * rstd, g * weight
    tilt = (weighted * normal).mean(-1, keepdims=True)
    dx = rstd * (weighted - weighted.mean(-1, keepdims=True) - normal * tilt)
    rows = tuple(range(x.ndim - 1))
    return dx, (g * normal).sum(rows), g.sum(rows)


def _one_hot(classes, count):
    return (classes[:, None] == np.arange(count)).astype(np.float64)


def cross_entropy(x, classes):
    """The losses, and each row's maximum and log(sum(exp(x - maximum)))."""
    top = x.max(-1, keepdims=True, initial=-np.inf)
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(x - top).sum(-1, keepdims=True))
    losses = [total[r, 0] - (x[r, c] - top[r, 0]) if c >= 0 else 0.0 for r, c in enumerate(classes)]
    return np.array(losses), np.concatenate([top, total], -1)


def cross_entropy_backward(g, x, classes, norms):
    p = np.exp(x - norms[:, :1] - norms[:, 1:]) - _one_hot(classes, x.shape[1])
    return np.where(classes[:, None] < 0, 0, g[:, None] * p)


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


def _steps(count, lengths, reverse):
    """Each step with a mask (batch, 1) of the sequences that have it."""
    return [(t, (t < lengths)[:, None]) for t in (reversed(range(count)) if reverse else range(count))]


def lstm(z, h, c, wh, lengths, reverse):
    """Outputs, last state, last cell, cells and gates."""
    ys, cells, gates = (np.zeros((*z.shape[:2], size)) for size in (h.shape[1], h.shape[1], z.shape[2]))
    for t, live in _steps(len(z), lengths, reverse):
        i, f, g, o = np.split(z[t] + h @ wh.T, 4, -1)
        i, f, g, o = _sigmoid(i), _sigmoid(f), np.tanh(g), _sigmoid(o)
        c = np.where(live, f * c + i * g, c)
        h = np.where(live, o * np.tanh(c), h)
        ys[t], cells[t], gates[t] = np.where(live, h, 0), c, np.where(live, np.concatenate([i, f, g, o], -1), 0)
    return ys, h, c, cells, gates


def lstm_backward(g_ys, dh, dc, gates, cells, c0, wh, lengths, reverse):
    dz = np.zeros_like(gates)
    for t, live in _steps(len(gates), lengths, not reverse):
        i, f, g, o = np.split(gates[t], 4, -1)
        t_before = t + 1 if reverse else t - 1
        before = cells[t_before] if 0 <= t_before < len(cells) else c0
        d, tanh = dh + g_ys[t], np.tanh(cells[t])
        d_cell = dc + d * o * (1 - tanh**2)
        parts = [
            d_cell * g * i * (1 - i),
            d_cell * before * f * (1 - f),
            d_cell * i * (1 - g**2),
            d * tanh * o * (1 - o),
        ]
        dz[t] = np.where(live, np.concatenate(parts, -1), 0)
        dh, dc = np.where(live, dz[t] @ wh, dh), np.where(live, d_cell * f, dc)
    return dz, dh, dc


def gru(z, h, wh, bias, lengths, reverse):
    """Outputs, last state, gates, and the states' parts in the candidates."""
    ys, gates, inner = (np.zeros((*z.shape[:2], size)) for size in (h.shape[1], z.shape[2], h.shape[1]))
    for t, live in _steps(len(z), lengths, reverse):
        (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(z[t], 3, -1), np.split(h @ wh.T + bias, 3, -1)
        r, u = _sigmoid(x_r + h_r), _sigmoid(x_z + h_z)
        n = np.tanh(x_n + r * h_n)
        h = np.where(live, (1 - u) * n + u * h, h)
        parts = h, np.concatenate([r, u, n], -1), h_n
        ys[t], gates[t], inner[t] = (np.where(live, part, 0) for part in parts)
    return ys, h, gates, inner


def gru_backward(g_ys, dh, gates, inner, before, wh, lengths, reverse):
    dz, dsums = np.zeros_like(gates), np.zeros_like(gates)
    for t, live in _steps(len(gates), lengths, not reverse):
        r, u, n = np.split(gates[t], 3, -1)
        d = dh + g_ys[t]
        dn = d * (1 - u) * (1 - n**2)
        dr, du = dn * inner[t] * r * (1 - r), d * (before[t] - n) * u * (1 - u)
        dz[t] = np.where(live, np.concatenate([dr, du, dn], -1), 0)
        dsums[t] = np.where(live, np.concatenate([dr, du, dn * r], -1), 0)
        dh = np.where(live, d * u + dsums[t] @ wh, dh)
    return dz, dsums, dh


def rnn(z, h, wh, lengths, reverse, relu):
    """Outputs and last state."""
    ys = np.zeros(z.shape)
    for t, live in _steps(len(z), lengths, reverse):
        y = z[t] + h @ wh.T
        h = np.where(live, np.maximum(y, 0) if relu else np.tanh(y), h)
        ys[t] = np.where(live, h, 0)
    return ys, h


def rnn_backward(g_ys, dh, ys, wh, lengths, reverse, relu):
    dz = np.zeros(ys.shape)
    for t, live in _steps(len(ys), lengths, not reverse):
        dz[t] = np.where(live, (dh + g_ys[t]) * (ys[t] > 0 if relu else 1 - ys[t] ** 2), 0)
        dh = np.where(live, dz[t] @ wh, dh)
    return dz, dh


def sgd_step(p, g, buffer, factors, nesterov, maximize):
    """The new parameter and, where there is one, its new buffer."""
    rate, momentum, share, decay = factors
    g = (-g if maximize else g) + decay * p
    if buffer is None:
        return [p - rate * g]
    buffer = momentum * buffer + share * g
    return [p - rate * (g + momentum * buffer if nesterov else buffer), buffer]


def adam_step(p, g, mean, square, peak, factors, decoupled, maximize):
    """The new parameter, mean, mean of squares and, where there is one, the largest of these."""
    decay, mean_share, keep, square_share, eps, rate, scale = factors
    g = -g if maximize else g
    p, g = (decay * p, g) if decoupled else (p, g + decay * p)
    mean, square = mean + mean_share * (g - mean), keep * square + square_share * g * g
    top = square if peak is None else np.maximum(peak, square)
    return [p - rate * mean / (np.sqrt(top) / scale + eps), mean, square, *([] if peak is None else [top])]
