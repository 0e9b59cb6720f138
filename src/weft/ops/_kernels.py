"""CPU kernels of our own: the library of `native/`, and each of its kernels as a function of arrays.

Where a kernel does not pay, is not built or does not fit this computer, the row's own body computes; `status` says why.
The library is loaded when it is first asked for. Sums do not depend on the number of threads.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import ctypes
import importlib
import platform
import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np

from weft._base import config
from weft.errors import DeviceError, DTypeError, ShapeError

Array = jax.Array
Pair = tuple[int, int]

_VERSION = 1  # of the library's targets
_TARGETS = (
    "weft_product_f32",
    "weft_product_f64",
    "weft_biased_product_f32",
    "weft_biased_product_f64",
    "weft_conv",
    "weft_conv_input_gradient",
    "weft_conv_weight_gradient",
    "weft_attention",
    "weft_attention_backward",
    "weft_lstm",
    "weft_lstm_backward",
)
_INSTRUCTIONS = {2: "AVX2", 512: "AVX-512"}
_MOST_TAPS = 1024  # of a convolution's kernel

# --- the library ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _State:
    ready: bool
    words: str


_state: list[_State] = []  # one, as soon as it is known
_lock = threading.Lock()


def available() -> bool:
    """Whether the kernels can be called; the first call loads them."""
    return _loaded().ready


def status() -> str:
    """Which instructions the kernels use, or why there are none."""
    return _loaded().words


def _loaded() -> _State:
    if not _state:
        with _lock:
            if not _state:
                _state.append(_load())
    return _state[0]


def _load() -> _State:
    if not config.NATIVE:
        return _State(False, "turned off by WEFT_NATIVE")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return _State(False, f"not for {sys.platform} on {platform.machine()}")
    path = _path()
    if path is None:
        return _State(False, "not built: install weft-native, or run tools/native.py in a checkout")
    try:
        library = ctypes.CDLL(str(path))
        versions = [getattr(library, f"weft_native_{word}")() for word in ("version", "ffi_major", "ffi_minor")]
    except (OSError, AttributeError) as error:
        return _State(False, f"cannot be loaded: {error}")
    if reason := _misfit(*versions):
        return _State(False, f"{reason}; build {path.name} again")
    instructions = _INSTRUCTIONS.get(library.weft_native_variant())
    if instructions is None:
        return _State(False, "this CPU has no AVX2")
    try:
        for name in _TARGETS:
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    except Exception as error:  # XLA refuses a handler in words of its own, with types of its own
        return _State(False, f"refused by XLA: {error}")
    return _State(True, f"in use, with {instructions}")


def _path() -> Path | None:
    """The library of the installed package, or of the source checkout that this file is in."""
    try:
        path = Path(importlib.import_module("weft_native").path())
    except ImportError:
        path = Path(__file__).parents[3] / "native" / "weft_native" / "libweft_native.so"
    return path if path.exists() else None


def _misfit(version: int, major: int, minor: int) -> str | None:
    """What the library was built for, if that is not what is here."""
    if version != _VERSION:
        return f"has version {version}, and this Weft needs {_VERSION}"
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    if not header.exists():  # registering will tell
        return None
    numbers = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header.read_text()))
    here = (int(numbers.get("MAJOR", major)), int(numbers.get("MINOR", minor)))
    if major != here[0] or minor > here[1]:
        return f"was built for version {major}.{minor} of XLA's FFI, and jax {jax.__version__} has {here[0]}.{here[1]}"
    return None


# --- calls ----------------------------------------------------------------------------------------------------


def _struct(shape: Sequence[int], like: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(shape), like.dtype)


def _require_floats(operation: str, *arrays: Array) -> None:
    """All arrays are float32, and the library is there."""
    for array in arrays:
        if array.dtype != jnp.float32:
            raise DTypeError(f"{operation}: the native kernel takes float32, got {array.dtype}")
    _require_library(operation)


def _require_library(operation: str) -> None:
    if not available():
        raise DeviceError(f"{operation}: the native kernels are {status()}; ask `available()` first")


def _require_shape(operation: str, name: str, array: Array, shape: Sequence[int]) -> None:
    if array.shape != tuple(shape):
        raise ShapeError(f"{operation}: {name} has shape {array.shape}, expected {tuple(shape)}")


def matmul(
    a: Array, b: Array, transpose_a: bool = False, transpose_b: bool = False, bias: Array | None = None
) -> Array:
    """op(a) @ op(b) + bias: (…, m, k) by (…, k, n) with equal leading dims, plus (n,); float32 or float64.

    `transpose_a` says that `a` is (…, k, m), and `transpose_b` that `b` is (…, n, k).
    """
    if a.dtype not in (jnp.float32, jnp.float64) or b.dtype != a.dtype:
        raise DTypeError(f"matmul: the native kernel takes two of float32 or float64, got {a.dtype} and {b.dtype}")
    if a.ndim < 2 or b.ndim != a.ndim or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"matmul: expected matrices, or equal batches of them, got {a.shape} and {b.shape}")
    m, k = a.shape[:-3:-1] if transpose_a else a.shape[-2:]
    n, same = b.shape[-2:] if transpose_b else b.shape[:-3:-1]
    if k != same:
        raise ShapeError(f"matmul: {k} columns of the first matrices do not meet {same} rows of the second")
    if bias is not None:
        _require_shape("matmul", "bias", bias, (n,))
        if bias.dtype != a.dtype:
            raise DTypeError(f"matmul: the bias is {bias.dtype}, and the matrices are {a.dtype}")
    _require_library("matmul")
    word = "f32" if a.dtype == jnp.float32 else "f64"
    name, arrays = ("product", (a, b)) if bias is None else ("biased_product", (a, b, bias))
    call = jax.ffi.ffi_call(f"weft_{name}_{word}", _struct((*a.shape[:-2], m, n), a))
    return call(*arrays, transpose_a=transpose_a, transpose_b=transpose_b)


# Arrays are (n, c, h, w) and (o, c, kh, kw); in memory the channels come last, and the weight is (kh, kw, c, o). XLA
# chooses these layouts for the elementwise operations in between, too, but not for sums over all dims but the channels:
# those have to be written over a transposed view.
_IMAGE = (0, 2, 3, 1)
_WEIGHT = (2, 3, 1, 0)


def _convolve(
    name: str,
    arrays: tuple[Array, Array],
    layouts: tuple[Sequence[int], Sequence[int]],
    out: jax.ShapeDtypeStruct,
    out_layout: Sequence[int],
    windows: tuple[Pair, tuple[Pair, Pair], Pair],
) -> Array:
    strides, padding, dilation = windows
    call = jax.ffi.ffi_call(f"weft_{name}", out, input_layouts=layouts, output_layouts=out_layout)
    start = (padding[0][0], padding[1][0])
    words = {"stride": strides, "dilation": dilation, "start": start}
    return call(*arrays, **{word: np.asarray(pair, np.int64) for word, pair in words.items()})


def _conv_shape(
    operation: str,
    x: Sequence[int],
    w: Sequence[int],
    strides: Pair,
    padding: tuple[Pair, Pair],
    dilation: Pair,
) -> tuple[int, ...]:
    """The shape of the result."""
    if len(x) != 4 or len(w) != 4 or x[1] != w[1]:
        raise ShapeError(f"{operation}: expected (n, c, h, w) and (o, c, kh, kw), got {tuple(x)} and {tuple(w)}")
    if min(strides) < 1 or min(dilation) < 1 or min(map(min, padding)) < 0 or not 0 < w[2] * w[3] <= _MOST_TAPS:
        raise ShapeError(
            f"{operation}: strides {strides} and dilation {dilation} must be positive, padding {padding} must not be "
            f"negative, and the kernel {tuple(w[2:])} must have 1 to {_MOST_TAPS} elements"
        )
    spans = [(size - 1) * step + 1 for size, step in zip(w[2:], dilation, strict=True)]
    sizes = [
        max(0, (size + sum(pads) - span) // step + 1)
        for size, pads, span, step in zip(x[2:], padding, spans, strides, strict=True)
    ]
    return (x[0], w[0], *sizes)


def conv(x: Array, w: Array, strides: Pair, padding: tuple[Pair, Pair], dilation: Pair = (1, 1)) -> Array:
    """2-D cross-correlation of (n, c, h, w) with (o, c, kh, kw), float32, groups 1.

    `padding` is ((top, bottom), (left, right)), not negative.
    """
    shape = _conv_shape("conv", x.shape, w.shape, strides, padding, dilation)
    _require_floats("conv", x, w)
    return _convolve("conv", (x, w), (_IMAGE, _WEIGHT), _struct(shape, x), _IMAGE, (strides, padding, dilation))


def conv_input_gradient(
    g: Array, w: Array, x_shape: Sequence[int], strides: Pair, padding: tuple[Pair, Pair], dilation: Pair = (1, 1)
) -> Array:
    """The gradient of `conv`'s input, of shape `x_shape`, from that of its result."""
    shape = _conv_shape("conv_input_gradient", x_shape, w.shape, strides, padding, dilation)
    _require_shape("conv_input_gradient", "the gradient", g, shape)
    _require_floats("conv_input_gradient", g, w)
    out = _struct(x_shape, g)
    return _convolve("conv_input_gradient", (g, w), (_IMAGE, _WEIGHT), out, _IMAGE, (strides, padding, dilation))


def conv_weight_gradient(
    g: Array, x: Array, w_shape: Sequence[int], strides: Pair, padding: tuple[Pair, Pair], dilation: Pair = (1, 1)
) -> Array:
    """The gradient of `conv`'s weight, of shape `w_shape`, from that of its result."""
    shape = _conv_shape("conv_weight_gradient", x.shape, w_shape, strides, padding, dilation)
    _require_shape("conv_weight_gradient", "the gradient", g, shape)
    _require_floats("conv_weight_gradient", g, x)
    out = _struct(w_shape, g)
    return _convolve("conv_weight_gradient", (g, x), (_IMAGE, _IMAGE), out, _WEIGHT, (strides, padding, dilation))


def _check_attention(operation: str, q: Array, k: Array, v: Array) -> None:
    fits = q.ndim == k.ndim == 4 and q.shape[0] == k.shape[0] and q.shape[3] == k.shape[3] and k.shape == v.shape
    if not fits or (q.shape[1] % k.shape[1] if k.shape[1] else q.shape[1]):
        raise ShapeError(
            f"{operation}: expected (batch, heads, time, features), equal for key and value, with heads of the query a "
            f"multiple of those of the key; got {q.shape}, {k.shape} and {v.shape}"
        )
    _require_floats(operation, q, k, v)


def attention(q: Array, k: Array, v: Array, causal: bool, scale: float) -> tuple[Array, Array]:
    """softmax(scale q kᵀ) v, and the logarithm of each row's sum of exponentials (batch, heads, time, 1).

    q is (batch, heads, time, features), k and v (batch, key heads, keys, features); float32. A causal query sees the
    keys up to its own number. No array of time by keys is made.
    """
    _check_attention("attention", q, k, v)
    outs = (_struct(q.shape, q), _struct((*q.shape[:3], 1), q))
    out, lse = jax.ffi.ffi_call("weft_attention", outs)(q, k, v, causal=causal, scale=np.float32(scale))
    return out, lse


def attention_backward(
    g: Array, out: Array, lse: Array, q: Array, k: Array, v: Array, causal: bool, scale: float
) -> tuple[Array, Array, Array]:
    """The gradients of `attention`'s q, k and v, from that of its first result; `out` and `lse` are its results."""
    _check_attention("attention_backward", q, k, v)
    _require_shape("attention_backward", "the gradient", g, q.shape)
    _require_shape("attention_backward", "the output", out, q.shape)
    _require_shape("attention_backward", "the logarithms", lse, (*q.shape[:3], 1))
    _require_floats("attention_backward", g, out, lse)
    outs = (_struct(q.shape, q), _struct(k.shape, q), _struct(k.shape, q))
    call = jax.ffi.ffi_call("weft_attention_backward", outs)
    dq, dk, dv = call(g, out, lse, q, k, v, causal=causal, scale=np.float32(scale))
    return dq, dk, dv


def lstm(z: Array, h0: Array, c0: Array, wh: Array, reverse: bool = False) -> tuple[Array, Array, Array]:
    """All steps of an LSTM layer: hidden states and cells (time, batch, hidden), and gates (time, batch, 4 hidden).

    z (time, batch, 4 hidden) is the projected input with all biases, h0 and c0 are (batch, hidden), and wh is
    (4 hidden, hidden); gates are ordered input, forget, cell, output. float32.
    """
    if z.ndim != 3:
        raise ShapeError(f"lstm: z has shape {z.shape}, expected (time, batch, 4 hidden)")
    (steps, batch, wide), hidden = z.shape, h0.shape[-1] if h0.ndim else 0
    for name, array, shape in (
        ("z", z, (steps, batch, 4 * hidden)),
        ("h0", h0, (batch, hidden)),
        ("c0", c0, (batch, hidden)),
        ("wh", wh, (4 * hidden, hidden)),
    ):
        _require_shape("lstm", name, array, shape)
    _require_floats("lstm", z, h0, c0, wh)
    states = _struct((steps, batch, hidden), z)
    call = jax.ffi.ffi_call("weft_lstm", (states, states, _struct((steps, batch, wide), z)))
    ys, cells, gates = call(z, h0, c0, wh, reverse=reverse)
    return ys, cells, gates


def lstm_backward(
    g_ys: Array, g_h: Array, g_c: Array, gates: Array, cells: Array, c0: Array, wh: Array, reverse: bool = False
) -> tuple[Array, Array, Array]:
    """The gradients of `lstm`'s z, h0 and c0, from those of its states, its last state and its last cell.

    That of wh is the product of z's, over all steps, with the states before each step.
    """
    (steps, batch, hidden), wide = cells.shape, 4 * cells.shape[-1]
    for name, array, shape in (
        ("g_ys", g_ys, (steps, batch, hidden)),
        ("g_h", g_h, (batch, hidden)),
        ("g_c", g_c, (batch, hidden)),
        ("gates", gates, (steps, batch, wide)),
        ("c0", c0, (batch, hidden)),
        ("wh", wh, (wide, hidden)),
    ):
        _require_shape("lstm_backward", name, array, shape)
    _require_floats("lstm_backward", g_ys, g_h, g_c, gates, cells, c0, wh)
    outs = (_struct(gates.shape, gates), _struct(c0.shape, c0), _struct(c0.shape, c0))
    call = jax.ffi.ffi_call("weft_lstm_backward", outs)
    dz, dh0, dc0 = call(g_ys, g_h, g_c, gates, cells, c0, wh, reverse=reverse)
    return dz, dh0, dc0
