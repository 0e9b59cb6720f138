"""Every kernel over odd sizes, with large and small work; run as a program, it prints a digest of all bits."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from tests.native.formulas import draw
from weft.ops._kernels import attention, channels, conv, extremes, library, optimizer, product, recurrent, rows

jax.config.update("jax_enable_x64", True)  # as Weft has it, once it computes

PRODUCTS = [(1, 1, 1), (0, 3, 5), (4, 0, 2), (3, 2, 0), (5, 17, 33), (65, 129, 31), (300, 70, 520), (31, 500, 257)]
CONVS = [
    # input, weight, strides, padding, dilation
    ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ((3, 3, 9, 7), (18, 3, 3, 2), (1, 1), ((1, 1), (0, 2)), (1, 1)),
    ((2, 17, 8, 9), (33, 17, 3, 3), (2, 3), ((2, 0), (1, 1)), (1, 1)),
    ((2, 5, 11, 10), (7, 5, 2, 3), (2, 1), ((3, 1), (0, 0)), (2, 3)),
    ((2, 19, 11, 43), (7, 19, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    ((2, 19, 11, 13), (7, 19, 1, 1), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ((2, 130, 5, 6), (70, 130, 3, 3), (2, 2), ((1, 1), (1, 1)), (1, 1)),  # sums in several parts
    ((9, 16, 33, 31), (16, 16, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)),
    ((1, 3, 2, 1100), (20, 3, 2, 2), (1, 1), ((1, 1), (1, 1)), (1, 1)),  # a row in several blocks
    ((2, 18, 11, 7), (15, 6, 3, 3), (2, 1), ((1, 1), (1, 0)), (1, 1)),  # groups
    ((2, 19, 11, 7), (19, 1, 3, 3), (2, 1), ((1, 1), (1, 0)), (1, 2)),  # depthwise
    ((2, 5, 41), (7, 5, 4), (3,), ((2, 1),), (2,)),
    ((2, 3, 5, 6, 7), (4, 3, 3, 2, 3), (2, 1, 2), ((1, 1), (0, 1), (1, 2)), (1, 2, 1)),
    ((0, 2, 4, 4), (3, 2, 2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ((2, 0, 4, 4), (3, 0, 2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1)),
    ((2, 2, 2, 2), (3, 2, 5, 5), (1, 1), ((0, 0), (0, 0)), (1, 1)),  # nothing fits
]
NORMS = [(2, 1), (5, 17, 3), (3, 64, 9, 7), (300, 40), (1, 600, 5, 2, 2)]
ATTENTIONS = [
    (1, 1, 1, 1, 1, 1),
    (2, 4, 2, 33, 65, 7),
    (1, 2, 1, 260, 130, 40),
    (1, 3, 3, 131, 300, 16),
    (2, 2, 2, 3, 0, 5),
]
ROWS = [(0, 3), (3, 1), (1, 40), (700, 33), (5, 20000)]
FOLDED = [(1, 1, 1), (3, 100, 1), (2, 70_001, 1), (2, 5, 3), (1, 40_000, 10), (2, 3, 5_000)]
STEPS = [[(1,)], [(0,), (3, 5), (), (17,)], [(130, 257), (15,), (2, 0), (3, 5000), (1,), (40001,)]]
LAYERS = [(1, 1, 1), (3, 5, 17), (4, 35, 40), (0, 2, 3), (2, 0, 3), (2, 3, 0)]


def results() -> Iterator[np.ndarray]:
    for m, n, k in PRODUCTS:
        for ta in (False, True):
            for tb in (False, True):
                a, b = draw(1, *((k, m) if ta else (m, k))), draw(2, *((n, k) if tb else (k, n)))
                yield product.matmul(a, b, ta, tb, draw(3, n))
                yield product.matmul(a.astype(np.float64), b.astype(np.float64), ta, tb)
                if library.has_bfloat16():
                    yield product.matmul(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16), ta, tb)
    for x_shape, w_shape, *windows in CONVS:
        x, weight = draw(1, *x_shape), draw(2, *w_shape)
        y = conv.conv(x, weight, *windows)
        g = draw(3, *y.shape)
        yield y
        yield conv.conv_input_gradient(g, weight, x.shape, *windows)
        yield conv.conv_weight_gradient(g, x, weight.shape, *windows)
    for shape in NORMS:
        yield channels.channel_sums(draw(1, *shape))
        x, weight = draw(1, *shape), draw(2, shape[1])
        y, mean, variance, rstd = channels.batch_norm(x, weight, draw(3, shape[1]), 1e-5)
        yield from (y, mean, variance, rstd)
        yield from channels.batch_norm_backward(draw(4, *shape), x, mean, rstd, weight)
    for batch, heads, shared, queries, keys, features in ATTENTIONS:
        q, k = draw(1, batch, heads, queries, features), draw(2, batch, shared, keys, features)
        v, g = draw(3, batch, shared, keys, features + 9), draw(4, batch, heads, queries, features + 9)
        bias, kept = draw(5, batch, 1, queries, keys), draw(6, batch, heads, queries, keys) > 0
        masks = [(None, None), (bias, None), (bias[:, :, :1] > 0, kept), (bias[:1, :, :, :1] > 0, None), (None, kept)]
        for causal, mask, dropped in [(True, None, None), *((False, *pair) for pair in masks)]:
            out, lse = attention.attention(q, k, v, causal, 0.5, mask, dropped, 2.0)
            yield from (out, lse)
            yield from attention.attention_backward(g, out, lse, q, k, v, causal, 0.5, mask, dropped, 2.0)
    for count, width in ROWS:
        x, g, weight = draw(1, count, width), draw(2, count, width), draw(3, width)
        y, mean, rstd = rows.layer_norm(x, weight, -weight, 1e-5)
        yield from (y, mean, rstd)
        yield from rows.layer_norm_backward(g, x, mean, rstd, weight)
        classes = np.arange(-1, count - 1) % width - (np.arange(count) % 3 == 0) * width
        losses, norms = rows.cross_entropy(x, classes)
        yield from (losses, norms)
        yield rows.cross_entropy_backward(g[:, 0], x, classes, norms)
    for shape in FOLDED:
        for dtype in (np.float32, np.float64, np.float16, jnp.bfloat16):
            x = draw(1, *shape).astype(dtype)
            x[-1, 0, 0] = np.nan
            yield from (extremes.extreme(x, [1], least=least) for least in (False, True))
    for steps, batch, hidden in LAYERS:
        h, lengths = draw(1, batch, hidden), np.arange(batch) % (steps + 2)
        ys = draw(2, steps, batch, hidden)
        for rest in ((None, False), (lengths, False), (lengths, True)):
            z, wh = draw(3, steps, batch, 4 * hidden), draw(4, 4 * hidden, hidden)
            yield from recurrent.lstm(z, h, -h, wh, *rest)
            yield from recurrent.lstm_backward(ys, h, -h, z, ys, -h, wh, *rest)
            z, wh = draw(5, steps, batch, 3 * hidden), draw(6, 3 * hidden, hidden)
            yield from recurrent.gru(z, h, wh, draw(7, 3 * hidden), *rest)
            yield from recurrent.gru_backward(ys, h, z, ys, -ys, wh, *rest)
            for relu in (False, True):
                yield from recurrent.rnn(ys, h, draw(8, hidden, hidden), *rest, relu)
                yield from recurrent.rnn_backward(ys, h, -ys, draw(8, hidden, hidden), *rest, relu)
    for shapes in STEPS:
        columns = [[np.abs(draw(seed, *shape)) for shape in shapes] for seed in range(5)]
        factors, age = np.abs(draw(5, 3, 7)), np.arange(len(shapes)) % 3
        for flag in (False, True):
            for buffers in (columns[2], []):
                yield from optimizer.sgd_step(*columns[:2], buffers, factors[0, :4], nesterov=flag, maximize=flag)
            for peaks in (columns[4], []):
                yield from optimizer.adam_step(
                    *columns[:4], peaks, factors, age.tolist(), decoupled=flag, maximize=not flag
                )


def digest() -> str:
    code = hashlib.sha256()
    for result in results():
        code.update(repr(result.shape).encode() + np.asarray(result).tobytes())
    return code.hexdigest()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
    print(library.status())
    print(digest(), flush=True)
