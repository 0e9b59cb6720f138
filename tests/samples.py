"""One application of each row of the operator table: small arrays and static arguments.

Where a row takes tensors of one shape and little else, its sample is made from its parameters.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from weft._base.dtype import float64, int8, int64
from weft.ops._kinds import REQUIRED, TENSOR_KINDS, Kind
from weft.ops._table import TABLE, OpDef


@dataclass(frozen=True)
class Sample:
    """A row with its tensor inputs, flat and in order, and the rest by name (`Many` tensors as their count)."""

    op: OpDef
    arrays: tuple[jax.Array, ...]
    static: dict[str, Any]

    def arguments(self, arrays: Sequence[jax.Array]) -> tuple[list[Any], dict[str, Any]]:
        """What the body is called with."""
        rest = iter(arrays)
        args, kwargs = [], {}
        for param in self.op.params:
            value = self.static[param.name]
            if param.kind in TENSOR_KINDS and value is not None:
                value = _taken(rest, value)
            elif param.kind is Kind.SCALAR and value is not None:
                value = jnp.asarray(value)
            elif param.kind is Kind.KEY:
                value = jax.random.key(0)
            if param.keyword_only:
                kwargs[param.name] = value
            else:
                args.append(value)
        return args, kwargs


def _taken(rest: Iterator[jax.Array], count: int) -> Any:
    """The next input, or (below zero) so many as a tuple."""
    return next(rest) if count > 0 else tuple(next(rest) for _ in range(-count))


def numbers(*shape: int, kind: str = "float", low: float = 0.1, high: float = 0.9) -> np.ndarray[Any, Any]:
    """Numbers without ties in a scrambled order; the domain of most functions has (0.1, 0.9)."""
    count = int(np.prod(shape))
    order = np.random.default_rng(count).permutation(count)
    found = (low + (high - low) * (order + 1) / (count + 1)).reshape(shape)
    match kind:
        case "int":
            return (order % 7 + 1).reshape(shape)
        case "bool":
            return order.reshape(shape) % 2 == 0
        case "complex":
            return found + 0.5j * found[..., ::-1] if shape else found + 0.5j
    return found


def indices(*shape: int, below: int) -> np.ndarray[Any, Any]:
    """Indices from 0 up to a bound."""
    return numbers(*shape, kind="int") % below


_X = numbers(4, 2, 6)
_TRIO = {1: numbers(2, 4, 6), 2: numbers(2, 4, 6, 4), 3: numbers(2, 4, 4, 4, 4)}  # images of so many space dims
_SQUARES = numbers(2, 4, 4) + np.eye(4)
_MATRIX, _OTHER = numbers(4, 2), numbers(2, 6)
_CLASSES = {"input": numbers(4, 6), "target": indices(4, below=6), "reduction": "mean"}
_CHANNELS = {"input": _TRIO[1], "weight": numbers(4), "bias": numbers(4)}
_FLAT = {"stride": (1,), "padding": (0,), "dilation": (1,), "groups": 1}


def _conv(n: int) -> dict[str, Any]:
    """A convolution over `n` space dims."""
    each = {name: value * n if isinstance(value, tuple) else value for name, value in _FLAT.items()}
    return {"input": _TRIO[n], "weight": numbers(2, 4, *[3] * n), "bias": numbers(2), **each}


def _conv_transpose(n: int) -> dict[str, Any]:
    """Its transpose."""
    return {**_conv(n), "weight": numbers(4, 2, *[3] * n), "output_padding": (0,) * n}


def _transform(kind: str, *sizes: int) -> dict[str, Any]:
    """A Fourier transform along two dims."""
    x = numbers(4, 2, 6, kind=kind)
    return {"input": x, "dim": (0, 2), "sizes": sizes, "norm": "ortho", "forward": True}


def _pool(n: int) -> dict[str, Any]:
    """Windows of two over `n` space dims."""
    return {"input": _TRIO[n], "kernel_size": 2}


def _adaptive(n: int) -> dict[str, Any]:
    """Two windows over each of `n` space dims."""
    return {"input": _TRIO[n], "output_size": 2}


def _fractional(n: int) -> dict[str, Any]:
    """Two windows of two over each of `n` space dims, at random places."""
    return {"input": _TRIO[n], "samples": numbers(2, 4, n), "kernel_size": (2,) * n, "output_size": (2,) * n}


def _grid(n: int) -> dict[str, Any]:
    """Images of `n` space dims read at two points a side, between their pixels."""
    return {
        "input": _TRIO[n],
        "grid": numbers(2, *[2] * n, n),
        "interpolation_mode": 0,
        "padding_mode": 0,
        "align_corners": False,
    }


_REGIONS = np.array([[0, 0.2, 0.4, 2.6, 3.1], [1, 1.1, 0.3, 2.9, 1.7]])
_POOLED = {"rois": _REGIONS, "spatial_scale": np.float64(0.9), "pooled_height": 2, "pooled_width": 2}
_OF_IMAGES = {**_POOLED, "batch_size": 2, "channels": 4, "height": 4, "width": 6}
_IMAGES, _BINS, _OWN_BINS = numbers(2, 4, 4, 6), numbers(2, 4, 2, 2), numbers(2, 1, 2, 2)
_DEFORMED = {
    "input": _IMAGES,
    "weight": numbers(2, 4, 3, 3),
    "offset": numbers(2, 18, 2, 4),
    "mask": numbers(2, 9, 2, 4),
    "bias": numbers(2),
    **dict.fromkeys(("stride_h", "stride_w", "dilation_h", "dilation_w", "groups", "offset_groups"), 1),
    "pad_h": 0,
    "pad_w": 0,
    "use_mask": True,
}

_FAMILIES = ("chebyshev_polynomial_", "hermite_polynomial_", "laguerre_polynomial_", "legendre_polynomial_")
_POLYNOMIALS = tuple(name for name in TABLE if name.removeprefix("shifted_").startswith(_FAMILIES))

_GRID = {"scale": numbers(2), "zero_point": np.array([1, 3]), "axis": 1}


def _integers(size: tuple[int, ...], weight: tuple[int, ...]) -> dict[str, Any]:
    """8-bit integers and weights of them, with their zero points."""
    x, w = (numbers(*shape, kind="int").astype(dtype) for shape, dtype in ((size, np.uint8), (weight, np.int8)))
    return {"input": x, "weight": w, "input_zero": np.array(2), "weight_zero": np.array([1, 0])}


GIVEN: dict[str, dict[str, Any]] = {
    # elements
    "prelu": {"input": _X - 0.5, "weight": numbers(2)},
    "rrelu_train": {"input": _X - 0.5, "lower": 0.1, "upper": 0.3},
    "pow_number": {"input": _X, "exponent": 3},
    "clamp": {"input": _X, "min": numbers(6), "max": np.float64(0.7)},
    "clip": {"input": _X, "min": numbers(6), "max": np.float64(0.7)},
    "polygamma": {"n": 1, "input": _X},
    "mvlgamma": {"input": _X + 2, "p": 2},
    "zeta": {"input": _X + 2, "other": np.roll(_X, 1)},
    **{name: {"input": _X, "n": numbers(6, kind="int").astype(float)} for name in _POLYNOMIALS},
    "fill": {"input": _X, "value": np.float64(2)},
    "masked_fill": {"input": _X, "mask": numbers(2, 6, kind="bool"), "value": np.float64(2)},
    "one_hot_classes": {"input": indices(4, 2, below=6), "num_classes": 6},
    "limit_rows": {"weight": _MATRIX, "indices": indices(3, below=4), "max_norm": np.float64(0.5), "norm_type": 2.0},
    "classes_within": {"target": indices(4, 2, below=6), "n_classes": 6},
    "row_numbers": {"input": indices(4, 2, below=6), "count": 6},
    "class_numbers": {"target": indices(4, 2, below=6), "n_classes": 6, "ignore_index": -100},
    "renorm": {"input": _X, "p": 2.0, "dim": 0, "maxnorm": 0.5},
    # places
    "index_fill": {"input": _X, "dim": 0, "index": indices(2, below=4), "value": np.float64(2)},
    "index": {"input": _X, "indices": [indices(4, below=2), indices(4, below=6)], "spec": (1, 2)},
    "index_put": {"input": _X, "indices": [indices(4, below=2)], "values": numbers(4, 4, 6), "spec": (1,)},
    "scatter_reduce": {
        "input": _MATRIX,
        "dim": 0,
        "index": indices(4, 2, below=4),
        "src": numbers(4, 2),
        "reduce": "amax",
    },
    "nonzero_static": {"input": _MATRIX, "size": 4},
    "histogram_counts": {"input": _X, "edges": np.array([0.1, 0.3, 0.9])},
    "histogramdd_counts": {"input": numbers(4, 6, 2), "edges": [np.array([0.1, 0.3, 0.9]), np.array([0.0, 0.5])]},
    "hash_tensor": {"input": _X, "dim": (0, 2)},
    # moved elements
    "view": {"input": _X, "shape": (8, 6)},
    "renamed": {"input": _X, "names": ("N", None, "C")},
    "reshape": {"input": _X, "shape": (4, 12)},
    "flatten": {"input": _X, "start_dim": 1, "end_dim": 2},
    "unflatten": {"input": _X, "dim": 2, "sizes": (2, 3)},
    "unsqueeze": {"input": _X, "dim": 1},
    "permute": {"input": _X, "dims": (2, 0, 1)},
    "movedim": {"input": _X, "source": (0,), "destination": (2,)},
    "moveaxis": {"input": _X, "source": (0,), "destination": (2,)},
    "expand": {"input": numbers(2, 1), "size": (4, 2, 6)},
    "broadcast_to": {"input": numbers(2, 1), "size": (4, 2, 6)},
    "slice_dim": {"input": _X, "dim": 2, "start": 1, "length": 2, "step": 2},
    "window": {"input": _X, "dimension": 2, "size": 3, "step": 2},
    "view_as_complex": {"input": numbers(4, 6, 2)},
    "repeat_interleave": {"input": _X, "repeats": 2, "dim": 1},
    "flip": {"input": _X, "dims": (2,)},
    "roll": {"input": _X, "shift": 1, "dim": 2},
    "tril_indices": {"row": 4, "col": 4, "offset": 0, "dtype": int64},
    "triu_indices": {"row": 4, "col": 4, "offset": 0, "dtype": int64},
    "cosine_window": {"size": (6,), "coefficients": (0.5, 0.5), "periodic": True, "dtype": float64},
    "bartlett_window": {"size": (6,), "periodic": True, "dtype": float64},
    "kaiser_window": {"size": (6,), "periodic": True, "beta": 12.0, "dtype": float64},
    "pixel_shuffle": {"input": _TRIO[2], "upscale_factor": 2},
    "pixel_unshuffle": {"input": _TRIO[2], "downscale_factor": 2},
    "channel_shuffle": {"input": _TRIO[2], "groups": 2},
    "native_channel_shuffle": {"input": _TRIO[2], "groups": 2},
    "grid_sampler": _grid(2),
    "grid_sampler_2d": _grid(2),
    "grid_sampler_3d": _grid(3),
    "affine_grid_generator": {"theta": numbers(4, 2, 3), "size": (4, 1, 2, 2), "align_corners": False},
    "interpolate_to": {
        "input": _TRIO[1],
        "size": (3,),
        "mode": "nearest",
        "align_corners": False,
        "scales": None,
    },
    "fft_c2c": _transform("complex", -1, -1),
    "fft_r2c": {**_transform("float", 3, 5), "onesided": True},
    "fft_c2r": _transform("complex", -1, 7),
    # products
    "matrix_power": {"input": numbers(2, 4, 4), "n": 3},
    "lu_factors": {"A": _SQUARES},
    "lu_parts": {
        "LU_data": _SQUARES,
        "LU_pivots": np.array([[1, 3, 3, 4], [2, 2, 4, 4]], np.int32),
        "refusal": "bad pivots",
    },
    "ldl_factors": {"A": _SQUARES - 1},
    "dividing_ldl_factors": {"A": _SQUARES - 1},
    "ldl_solve": {
        "LD": _SQUARES,
        "pivots": np.array([[1, -3, -3, 4], [2, 2, 4, 4]], np.int32),
        "B": numbers(2, 4, 6),
    },
    "extreme_pairs": {
        "A": _SQUARES + _SQUARES.swapaxes(1, 2),
        "X": numbers(2, 4, 1),
        "tol": np.float64(1e-7),
        "count": 1,
        "largest": True,
        "niter": 20,
    },
    "solve_triangular": {"A": _SQUARES, "B": numbers(2, 4, 6), "upper": True},
    "eig": {"A": _SQUARES},
    "eigvals": {"A": _SQUARES},
    "svdvals": {"A": _X},
    "pseudo_inverse": {"A": _X, "hermitian": False},
    "rank": {"A": _X, "hermitian": False},
    "cholesky_info": {"A": _SQUARES},
    "householder_product": {"input": numbers(2, 4, 3), "tau": numbers(2, 3)},
    "einsum": {"operands": [_MATRIX, _OTHER], "equation": "ij,jk->ik"},
    "tensordot": {"a": _X, "b": numbers(6, 2), "dims_a": (2,), "dims_b": (0,)},
    "cross": {"input": numbers(4, 3), "other": numbers(4, 3) ** 2, "dim": 1},
    "mm": {"input": _MATRIX, "mat2": _OTHER},
    "mv": {"input": _MATRIX, "vec": numbers(2)},
    "addmm": {"input": numbers(4, 6), "mat1": _MATRIX, "mat2": _OTHER},
    "addmv": {"input": numbers(4), "mat": _MATRIX, "vec": numbers(2)},
    "addbmm": {"input": numbers(2, 6), "batch1": numbers(4, 2, 4), "batch2": numbers(4, 4, 6)},
    # layers
    "conv_transpose1d": _conv_transpose(1),
    "conv2d": _conv(2),
    "conv_transpose2d": _conv_transpose(2),
    "conv3d": _conv(3),
    "conv_transpose3d": _conv_transpose(3),
    # regions of images
    "torchvision::roi_align": {"input": _IMAGES, **_POOLED, "sampling_ratio": 2, "aligned": True},
    "torchvision::_roi_align_backward": {"grad": _BINS, **_OF_IMAGES, "sampling_ratio": 2, "aligned": True},
    "torchvision::ps_roi_align": {"input": _IMAGES, **_POOLED, "sampling_ratio": 2},
    "torchvision::_ps_roi_align_backward": {
        "grad": _OWN_BINS,
        "channel_mapping": np.arange(8, dtype=np.int32).reshape(2, 1, 2, 2) % 4,
        **_OF_IMAGES,
        "sampling_ratio": 2,
    },
    "torchvision::roi_pool": {"input": _IMAGES, **_POOLED},
    "torchvision::_roi_pool_backward": {
        "grad": _BINS,
        "argmax": indices(2, 4, 2, 2, below=24).astype(np.int32),
        **_OF_IMAGES,
    },
    "torchvision::ps_roi_pool": {"input": _IMAGES, **_POOLED},
    "torchvision::_ps_roi_pool_backward": {
        "grad": _OWN_BINS,
        "channel_mapping": np.arange(8, dtype=np.int32).reshape(2, 1, 2, 2) % 4,
        **_OF_IMAGES,
    },
    "torchvision::deform_conv2d": _DEFORMED,
    "torchvision::_deform_conv2d_backward": {"grad": numbers(2, 2, 2, 4), **_DEFORMED},
    # integers on a grid
    "quantize_affine": {"input": _X, **_GRID, "dtype": int8},
    "dequantize_affine": {"input": numbers(4, 2, 6, kind="int").astype(np.int8), **_GRID},
    "fake_quantize_affine": {"input": _X, **_GRID, "quant_min": 0, "quant_max": 15},
    "integer_linear": _integers((4, 6), (2, 6)),
    "integer_conv": _integers((2, 4, 6), (2, 4, 3)) | {"groups": 1},
    "im2col": {"input": _TRIO[2], "kernel_size": 2},
    "col2im": {"input": numbers(2, 16, 15), "output_size": (6, 4), "kernel_size": 2},
    "layer_norm": {"input": _X, "normalized_shape": (6,), "weight": numbers(6), "bias": numbers(6)},
    "rms_norm": {"input": _X, "normalized_shape": (6,), "weight": numbers(6)},
    "batch_norm_train": {**_CHANNELS, "running_mean": numbers(4), "running_var": numbers(4) + 1},
    "batch_norm_eval": {**_CHANNELS, "running_mean": numbers(4), "running_var": numbers(4) + 1},
    "group_norm": {**_CHANNELS, "num_groups": 2},
    "local_response_norm": {"input": _TRIO[2], "size": 3},
    **{f"max_pool{n}d_values": _pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": _pool(n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _pool(n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d_values": _adaptive(n) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d_with_indices": _adaptive(n) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _adaptive(n) for n in (1, 2, 3)},
    "max_unpool": {"input": _TRIO[1], "indices": indices(2, 4, 6, below=6), "output_size": (8,)},
    "fractional_max_pool2d_from": _fractional(2),
    "fractional_max_pool3d_from": _fractional(3),
    "kept_where": {
        "found_inf": numbers(),
        "old": [_MATRIX, numbers(3)],
        "new": [_MATRIX + 1, numbers(3) + 1],
    },
    "optimization_barrier": {"tensors": [_X, numbers(3)]},
    "all_reduce": {"input": _X, "reduce_type": "sum"},
    "all_gather": {"input": _X, "dim": 1, "size": 1},
    "reduce_scatter": {"input": _X, "reduce_type": "sum", "dim": 0, "size": 1},
    "all_to_all": {"input": _X, "split_dim": 0, "concat_dim": 2, "size": 1},
    "collective_permute": {"input": _X, "pairs": ((0, 0),)},
    "collective_broadcast": {"input": _X, "root": 0},
    "attention_block_backward": {
        **dict.fromkeys(("grad", "output", "query", "key", "value"), _X),
        "logsumexp": numbers(4, 2, 1),
    },
    "embedding": {"input": indices(4, 2, below=6), "weight": numbers(6, 4)},
    "embedding_bag": {"input": indices(4, 2, below=6), "weight": numbers(6, 4), "mode": "sum"},
    # losses
    "ctc_losses": {
        "log_probs": np.log(numbers(6, 4, 3)),
        "targets": indices(4, 2, below=2) + 1,
        "input_lengths": np.array([6, 5, 4, 6]),
        "target_lengths": np.array([2, 1, 0, 2]),
        "longest": 2,
    },
    "nll_loss": _CLASSES,
    "multi_margin_loss": _CLASSES,
    "cosine_embedding_loss": {
        "input1": numbers(4, 6),
        "input2": numbers(4, 6) ** 2,
        "target": np.array([1, -1, 1, -1]),
    },
    # orders
    "multinomial": {"input": numbers(4, 6), "num_samples": 2, "replacement": False},
    "sort": {"input": _X, "dim": 2},
    "argsort": {"input": _X, "dim": 2},
    "topk": {"input": _X, "k": 2, "dim": 2},
    "kthvalue": {"input": _X, "k": 2, "dim": 2},
    "mode": {"input": _X, "dim": 2},
    # recurrent layers
    "lstm_layer": {
        "input": numbers(2, 4, 3),
        "h0": numbers(4, 2),
        "c0": numbers(4, 6),
        "weight_ih": numbers(24, 3),
        "weight_hh": numbers(24, 2),
        "weight_hr": numbers(2, 6),
        "lengths": np.array([2, 1, 2, 1]),
    },
    "gru_layer": {
        "input": numbers(2, 4, 3),
        "h0": numbers(4, 2),
        "weight_ih": numbers(6, 3),
        "weight_hh": numbers(6, 2),
        "bias_ih": numbers(6),
        "bias_hh": numbers(6),
        "reverse": True,
    },
    "rnn_layer": {
        "input": numbers(2, 4, 3),
        "h0": numbers(4, 6),
        "weight_ih": numbers(6, 3),
        "weight_hh": numbers(6, 6),
    },
    "lstm_cell": {
        "input": numbers(4, 3),
        "hx": [numbers(4, 2), numbers(4, 2)],
        "w_ih": numbers(8, 3),
        "w_hh": numbers(8, 2),
    },
    "gru_cell": {"input": numbers(4, 3), "hx": numbers(4, 2), "w_ih": numbers(6, 3), "w_hh": numbers(6, 2)},
    "rnn_tanh_cell": {"input": numbers(4, 3), "hx": numbers(4, 2), "w_ih": numbers(2, 3), "w_hh": numbers(2, 2)},
    "rnn_relu_cell": {"input": numbers(4, 3), "hx": numbers(4, 2), "w_ih": numbers(2, 3), "w_hh": numbers(2, 2)},
}
"""Arguments by name of rows that the parameters alone do not tell; arrays stand for tensors."""


_SHAPES = ((4, 6), (4, 2, 6), (2, 4, 4), (6,))
_KINDS = ("float", "int", "bool", "complex")


@cache
def sample_of(op: OpDef) -> Sample | None:
    """The sample of a row, or None where there is none that its body takes."""
    if op.name in GIVEN:
        return as_sample(op, GIVEN[op.name])
    for shape in _SHAPES:
        for kind in _KINDS:
            found = _automatic(op, shape, kind)
            if found is not None and _fits(found):
                return found
    return None


def _automatic(op: OpDef, shape: tuple[int, ...], kind: str) -> Sample | None:
    given: dict[str, Any] = {}
    for at, param in enumerate(op.params):
        if param.default is not REQUIRED:
            continue
        match param.kind:
            case Kind.ARRAY | Kind.OPERAND:
                given[param.name] = np.roll(numbers(*shape, kind=kind), at)
            case Kind.ARRAYS:
                given[param.name] = [np.roll(numbers(*shape, kind=kind), i) for i in range(2)]
            case Kind.SCALAR:
                given[param.name] = 2
            case Kind.DIM | Kind.DIMS:
                given[param.name] = 0
            case Kind.SHAPE:
                given[param.name] = (4, 2)
            case Kind.DTYPE:
                given[param.name] = float64
            case Kind.STATIC:
                return None
    return as_sample(op, given)


def as_sample(op: OpDef, given: dict[str, Any]) -> Sample:
    """A row with arguments by name; arrays, and lists of them, stand for tensors."""
    arrays: list[Any] = []
    static: dict[str, Any] = {}
    for param in op.params:
        value = given.get(param.name, None if param.default is REQUIRED else param.default)
        if param.kind in TENSOR_KINDS and value is not None:
            several = isinstance(value, list)
            arrays.extend(value if several else [value])
            value = -len(value) if several else 1
        static[param.name] = value
    return Sample(op, tuple(map(jnp.asarray, arrays)), static)


def _fits(sample: Sample) -> bool:
    """Whether the body and the rule take the sample."""
    assert sample.op.dims is not None, f"the row {sample.op.name!r} has no dims rule; give it one (see ops/_dims.py)"
    args, kwargs = sample.arguments(sample.arrays)
    try:
        with warnings.catch_warnings(action="error"):
            sample.op.dims([a.shape for a in sample.arrays], sample.static)
            jax.eval_shape(lambda: sample.op.impl(*args, **kwargs))
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, NotImplementedError, DeprecationWarning):
        return False
    return True
