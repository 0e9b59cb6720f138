"""Names of PyTorch's operators: for comparison, and refused with advice where they are called."""

from __future__ import annotations

import pytest

import weft


@pytest.mark.parametrize(
    ("operator", "advice"),
    [
        (weft.ops.aten.relu, r"torch\.ops\.aten\.relu is the name of an operator, .*: call torch\.relu\(\)$"),
        (weft.ops.aten.add.Tensor, r"torch\.ops\.aten\.add\.Tensor is the name .*: call torch\.add\(\)$"),
        (weft.ops.aten.softplus, r": call torch\.nn\.functional\.softplus\(\)$"),
        (weft.ops.aten._to_copy.default, r": call the function of torch or torch\.nn\.functional that computes it$"),
    ],
)
def test_a_call_says_what_to_call(operator, advice):
    with pytest.raises(TypeError, match=advice):
        operator(weft.ones(2))


def test_the_namespace_of_quantized_operators_says_where_functions_are():
    text = r"^'_OpNamespace' 'quantized' object has no attribute 'add': .* in torch\.ao\.nn\.quantized\.QFunctional$"
    with pytest.raises(AttributeError, match=text):
        weft.ops.quantized.add
    assert not hasattr(weft.ops.quantized, "linear_dynamic")
