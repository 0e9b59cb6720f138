"""`rearrange`, `reduce` and `repeat` by names: what stands for the rest, reductions, texts of errors."""

from __future__ import annotations

import re

import pytest

import weft
from weft import nn

X = weft.arange(24.0).reshape(2, 3, 4).rename("n", "c", "t")


@pytest.mark.parametrize(
    ("entries", "names", "shape"),
    [
        (("t", ...), ("t", "n", "c"), (4, 2, 3)),
        ((..., "n"), ("c", "t", "n"), (3, 4, 2)),
        (("t", ("rest", ...)), ("t", "rest"), (4, 6)),
        ((...,), ("n", "c", "t"), (2, 3, 4)),
        ((["t", ("rest", "n", "c")],), ("t", "rest"), (4, 6)),
    ],
)
def test_an_ellipsis_stands_for_the_other_dims_and_a_list_for_all_entries(entries, names, shape):
    result = X.rearrange(*entries)
    assert (result.names, tuple(result.shape)) == (names, shape)


@pytest.mark.parametrize("by", ["sum", "mean", "prod", "var", "std"])
def test_reductions(by):
    want = X.prod("t").prod("n") if by == "prod" else getattr(X, by)(["n", "t"])
    assert weft.equal(X.reduce("c", by=by), want)
    assert X.reduce(["c", "n"], by=by).names == ("c", "n")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: X.rearrange(..., "t", ...),
            "rearrange(): more than one Ellipsis ('...') in [Ellipsis, 't', Ellipsis].",
        ),
        (lambda: X.rename(None).rearrange(...), "rearrange(): '...' stands for dims with names, and Tensor[None, None"),
        (lambda: X.rearrange("n", "n", "c", "t"), "rearrange(): dim 'n' of Tensor['n', 'c', 't'] is in two entries"),
        (lambda: X.reduce("z", by="sum"), "Name 'z' not found in Tensor['n', 'c', 't']."),
        (lambda: X.reduce(("q", "n", "z"), by="sum"), "Name 'z' not found in Tensor['n', 'c', 't']."),
        (lambda: X.reduce("n", by="median"), "reduce(): `by` is one of 'sum', 'mean', 'prod', 'var', 'std', 'max'"),
    ],
)
def test_texts_of_errors(call, text):
    with pytest.raises((RuntimeError, ValueError), match=re.escape(text)):
        call()


def test_a_reduction_is_given_by_name():
    with pytest.raises(TypeError, match=r"^reduce\(\): `by` is the name of a reduction, such as 'sum', not "):
        X.reduce("n", by=weft.sum)  # type: ignore[arg-type]


def test_a_dim_may_have_the_name_of_a_parameter():
    x = weft.ones(2, names=("input",))
    assert x.rename(input="other").names == ("other",)
    assert x.clone().rename_(input="other").names == ("other",)
    assert x.repeat(input=2).shape == (4,)
    assert x.rearrange("a", "b", input=(("a", 2), ("b", 1))).names == ("a", "b")
    assert x.reduce("a", by="sum", input=(("a", 2), ("b", 1))).names == ("a",)


def test_a_layer_joins_dims_by_name():
    for layer in (nn.Flatten("c", "t", "features"), nn.Flatten(["c", "t"], out_dim="features")):
        assert layer(X).names == ("n", "features")
    assert nn.Flatten(out_dim="features")(X).names == ("n", "features")
    assert nn.Flatten()(X).names == ("n", None)
    assert repr(nn.Flatten()) == "Flatten(start_dim=1, end_dim=-1)"
