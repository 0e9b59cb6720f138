"""Samples whose tensors can be split, of rows whose sample in `tests/samples.py` cannot; and which rows never are."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tests.samples import Sample, as_sample, indices, numbers, sample_of
from weft.ops._kinds import TENSOR_KINDS, Kind
from weft.ops._table import TABLE, OpDef

_X = numbers(4, 2, 6)
_SQUARES = numbers(2, 4, 4) + np.eye(4)
_HEADS = {"query": numbers(2, 4, 6), "key": numbers(2, 4, 6) ** 2, "value": numbers(2, 4, 6) + 1}
_ROWS = {"input": numbers(4, 6), "dim": 0, "index": np.array([2, 0]), "source": numbers(2, 6)}
_PLACED = {"input": numbers(4, 6), "dim": 0, "index": np.array([[2] * 6, [0] * 6]), "src": numbers(2, 6)}
_CLASSES = {"input": numbers(4, 6), "target": indices(4, below=6), "reduction": "sum"}

SPLIT: dict[str, dict[str, Any]] = {
    "attention": _HEADS,
    "attention_block": _HEADS,
    "attention_dropout": {**_HEADS, "dropout_p": 0.3},
    "vector_norm": {"x": _X, "dim": (2,)},
    "matrix_norm": {"A": _X, "dim": (-2, -1)},
    "qr": {"A": _SQUARES},
    "geqrf": {"input": _SQUARES},
    "svd": {"A": _SQUARES},
    "dividing_lu_factors": {"A": _SQUARES},
    "take_along_dim": {"input": numbers(4, 6), "indices": indices(4, 6, below=4), "dim": 0},
    "diagonal": {"input": _SQUARES, "dim1": 1, "dim2": 2},
    "tile": {"input": numbers(4, 6), "dims": (2, 1)},
    "repeat": {"input": numbers(4, 6), "repeats": (2, 1)},
    "rot90": {"input": _X, "dims": (0, 1)},
    "tril": {"input": _SQUARES},
    "triu": {"input": _SQUARES},
    "squeeze": {"input": numbers(4, 1, 6), "dim": 1},
    "cross_entropy_loss": _CLASSES,
    "nll_loss": _CLASSES,
    "nanmean": {"input": _X, "dim": (1,)},
    **{name: {"input": _X, "dim": 1} for name in ("aminmax", "argmax", "argmin")},
    **{name: {"input": _X, "dim": (1,)} for name in ("var_dims", "std_dims", "var_mean_dims", "std_mean_dims")},
}
"""Arguments by name, as `GIVEN` in `tests/samples.py` has them."""

VALID: dict[str, dict[str, Any]] = {
    "cholesky": {"input": _SQUARES @ _SQUARES.swapaxes(1, 2)},
    "gather": {"input": numbers(4, 6), "dim": 0, "index": indices(2, 6, below=4)},
    "scatter_add": _PLACED,
    "scatter_src": _PLACED,
    "index_add": _ROWS,
    "index_copy": _ROWS,
    "index_select": {"input": numbers(4, 6), "dim": 0, "index": np.array([2, 0])},
    "unscale_gradients": {
        "grads": [numbers(4, 2), numbers(3)],
        "found_inf": np.asarray(0.0),
        "scale": np.asarray(8.0),
    },
    "multilabel_margin_loss": {"input": numbers(4, 6), "target": indices(4, 6, below=6), "reduction": "sum"},
}
"""The same for rows whose other sample is for their rule alone: its indices are out of range, say."""

_POSITIONS = "positions in the whole tensor, or values anywhere in it, decide what an element becomes"
_ALL = "the result depends on all elements in a way that has no partial result"
_DRAWS = "its loops go on until all elements are drawn, so only all of them can be drawn"
_SCALARS = "it takes numbers"

WHOLE = {
    **dict.fromkeys(("nonzero_static", "put", "masked_scatter", "index_put", "limit_rows", "combinations"), _POSITIONS),
    **dict.fromkeys(("strided", "flipud", "fliplr", "diag", "diagflat", "block_diag", "kron", "vander"), _POSITIONS),
    "affine_grid_generator": "its argument `size` has that of the batch",
    **dict.fromkeys(
        ("histc", "histogram_counts", "histogramdd_counts", "median_all", "nanmedian_all", "dist", "trace"), _ALL
    ),
    **dict.fromkeys(("cov", "corrcoef", "lbfgs_step"), _ALL),
    **dict.fromkeys(("poisson", "binomial", "_standard_gamma", "_sample_dirichlet"), _DRAWS),
    "updated_scale": _SCALARS,
    "attention_block_backward": "its blocks are made of parts of a sequence that a process already has",
}
"""Rows whose tensors are never split, and why. This set only shrinks."""

_SHAPES = {"muon_step": [(4, 2), (2, 6)], "adafactor_step": [(6,), (3,)]}
_OF_AGES = {"step", "eta", "mu", "mu_product"}  # one number for all parameters of an age
_OF_MATRICES = {"row_var", "col_var"}  # which the sample has none of

ROWS = [name for name, op in TABLE.items() if any(p.kind in TENSOR_KINDS for p in op.params)]


@cache
def samples_of(name: str) -> list[Sample]:
    """The samples of a row that takes tensors."""
    op = TABLE[name]
    if name in VALID:
        return [as_sample(op, VALID[op.name])]
    found = [sample_of(op) or _step(op)]
    return [*found, as_sample(op, SPLIT[op.name])] if op.name in SPLIT else found


def _step(op: OpDef) -> Sample:
    """A step of an optimizer with two parameters of one age."""
    given: dict[str, Any] = {"age": (0, 0), "nesterov": False, "maximize": False, "decoupled_weight_decay": False}
    given |= {"ns_steps": 2, "adjust_lr_fn": None}
    shapes = _SHAPES.get(op.name, [(4, 2), (3,)])
    for param in op.params:
        if param.kind is Kind.SCALAR:
            given[param.name] = None if param.optional else 0.1
        elif param.name in _OF_AGES:
            given[param.name] = [np.asarray(3.0)]
        elif param.kind in TENSOR_KINDS:
            given[param.name] = [] if param.name in _OF_MATRICES else [numbers(*shape) for shape in shapes]
    return as_sample(op, given)
