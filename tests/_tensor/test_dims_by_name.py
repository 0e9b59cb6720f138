"""A dim may be given by its name wherever it may be given by its number: in every row, function, method and module."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import weft
from weft import Tensor, nn
from weft._tensor.functions import FUNCTIONS
from weft.nn import functional as F
from weft.nn.utils import parametrizations, prune, spectral_norm, weight_norm
from weft.ops._kinds import Kind
from weft.ops._table import TABLE

IS_DIM = re.compile(r"dims?|dim\d|(start|end|out|tensor)_dim|axis|axes|dims_\w")
WITHOUT = {
    "unsqueeze": "dim",  # places of dims that are not there yet
    "stack": "dim",
    "segment_reduce": "axis",  # 0 alone is supported
    "diag_embed": "dim1 dim2",
    "split": "dim",  # recorded answers of PyTorch refuse names in these and in `topk`
    "chunk": "dim",
    "narrow": "dim",
    "unsafe_split": "dim",
    "unsafe_chunk": "dim",
    "tile": "dims",  # these are numbers of copies
    "tensordot": "dims_a dims_b dims",  # two lists; the function looks up those of each tensor
    "flatten": "start_dim end_dim out_dim dims",  # it looks them up itself
    "tensorsolve": "dims",  # `movedim` does
    **dict.fromkeys(("fft_c2c", "fft_r2c", "fft_c2r"), "dim"),  # the functions of `fft` do
}


def _of_rows() -> set[tuple[str, str]]:
    return {
        (op.name, p.name)
        for op in TABLE.values()
        for p in op.params
        if IS_DIM.fullmatch(p.name)
        and p.kind not in (Kind.DIM, Kind.DIMS)
        and p.text.removesuffix(" | None") not in ("OwnDim", "DimList")
    }


def _of_composites() -> set[tuple[str, str]]:
    return {
        (c.name, p.name)
        for c in FUNCTIONS.values()
        if c.row is None
        for p in inspect.signature(c.function).parameters.values()
        if IS_DIM.fullmatch(p.name)
        and str(p.annotation).removesuffix(" | None") not in ("Dim", "Dims", "AnyDims", "OwnDim")
    }


def test_every_parameter_that_is_a_dim_takes_names():
    assert {pair for pair in _of_rows() | _of_composites() if pair[1] not in WITHOUT.get(pair[0], "").split()} == set()


X = weft.arange(12.0).reshape(4, 3).rename("n", "c")
Y = weft.arange(6.0).reshape(3, 2).rename("d", "k")


@pytest.mark.parametrize(
    ("by_name", "by_number"),
    [
        (lambda: weft.split_with_sizes(X, [1, 2], "c"), lambda: weft.split_with_sizes(X, [1, 2], 1)),
        (lambda: weft.select_copy(X, "c", 1), lambda: weft.select_copy(X, 1, 1)),
        (lambda: weft.slice_copy(X, "c", 1), lambda: weft.slice_copy(X, 1, 1)),
        (lambda: X.select_scatter(X[0] + 1, "n", 2), lambda: X.select_scatter(X[0] + 1, 0, 2)),
        (lambda: X.slice_scatter(X + 1, "n"), lambda: X.slice_scatter(X + 1, 0)),
        (lambda: weft.cross(X, X + 1, "c"), lambda: weft.cross(X, X + 1, 1)),
        (lambda: weft.linalg.cross(X, X + 1, dim="c"), lambda: weft.linalg.cross(X, X + 1, dim=1)),
        (lambda: F.cosine_similarity(X, X + 1, "n"), lambda: F.cosine_similarity(X, X + 1, 0)),
        (lambda: F.cosine_similarity(X[0], X, "c"), lambda: F.cosine_similarity(X[0], X, 1)),
        (lambda: nn.CosineSimilarity("n")(X, X + 1), lambda: nn.CosineSimilarity(0)(X, X + 1)),
        (lambda: weft.tensordot(X, Y, (["c"], ["d"])), lambda: weft.tensordot(X, Y, ([1], [0]))),
        (lambda: weft.tensordot(X, Y, ("c", "d")), lambda: weft.tensordot(X, Y, ([1], [0]))),
    ],
)
def test_names_say_the_same_as_numbers(by_name: Callable[[], Any], by_number: Callable[[], Any]):
    ours, theirs = by_name(), by_number()
    for one, other in zip(*((r,) if isinstance(r, Tensor) else r for r in (ours, theirs)), strict=True):
        assert one.names == other.names
        assert one.tolist() == other.tolist()


def test_a_name_that_is_not_there_is_an_error():
    for call in (lambda: X.sort("z"), lambda: weft.cross(X, X, "z"), lambda: X.select("z", 0)):
        with pytest.raises(RuntimeError, match=r"^Name 'z' not found in Tensor\['n', 'c'\]\.$"):
            call()


def _layer() -> nn.Linear:
    weft.manual_seed(0)
    layer = nn.Linear(3, 4)
    layer.weight.rename_("out", "features")
    return layer


@pytest.mark.parametrize(
    "change",
    [
        lambda layer, dim: parametrizations.weight_norm(layer, dim=dim),
        lambda layer, dim: parametrizations.spectral_norm(layer, dim=dim),
        lambda layer, dim: spectral_norm(layer, dim=dim),
        lambda layer, dim: prune.ln_structured(layer, "weight", 1, 2, dim=dim),
        lambda layer, dim: prune.random_structured(layer, "weight", 1, dim=dim),
    ],
)
def test_changes_of_a_weight_take_the_name_of_its_dim(change):
    by_name, by_number = (change(_layer(), dim) for dim in ("features", 1))
    assert weft.allclose(by_name(X).rename(None), by_number(X).rename(None))  # rows may lie otherwise: another rounding
    assert by_name.weight.names == ("out", "features")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_older_weight_norm_takes_the_name_of_a_dim():
    assert weight_norm(_layer(), dim="features")(X).tolist() == weight_norm(_layer(), dim=1)(X).tolist()


@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("use_trivialization", [True, False])
def test_an_orthogonal_weight_keeps_its_names(orthogonal_map, use_trivialization):
    layer = parametrizations.orthogonal(_layer(), "weight", orthogonal_map, use_trivialization=use_trivialization)
    assert layer.weight.names == ("out", "features")
    assert layer(X).names == ("n", "out")
    layer(X).sum().backward()
    grad = layer.parametrizations.weight.original.grad
    assert grad.names == ("out", "features")


@pytest.mark.parametrize(
    "call", [lambda: X.topk(1, "n"), lambda: X.split(1, "n"), lambda: X.chunk(2, "n"), lambda: X.narrow("n", 0, 1)]
)
def test_where_pytorch_takes_numbers_only_names_are_refused(call):
    with pytest.raises(TypeError, match="argument 'dim' must be int, not str"):
        call()
