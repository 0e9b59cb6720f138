"""Expressions over tensors with named dims give what PyTorch 1.13, the last release with names, gave for them."""

from __future__ import annotations

import builtins
import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

import weft

_CASES = json.loads((Path(__file__).parent / "named_cases.json").read_text())

_OWN_WORDS = {
    "T((2,3),('N','C')).topk(1,'C')": "topk(): argument 'dim' must be int, not str",
    "T((2,3),('N','C')).topk(1,'Z')": "topk(): argument 'dim' must be int, not str",
    "T((2,3,4,5),('N','C','H','W')).split(1,'Z')": "split(): argument 'dim' must be int, not str",
    "T((2,3,4,5),('N','C','H','W')).item()": "a Tensor with 120 elements cannot be converted to Scalar",
    "T((2,3),('N','C')).align_as(T((2,),('N',)))": (
        "align_to: Cannot find dim 'C' from Tensor['N', 'C'] in desired alignment ['N']."
    ),
    "torch.cat([T((2,3),('N','C')),T((2,3),('N','Z'))],0)": (
        "cat: Expected 'C' (index 1 of ['N', 'C']) to match 'Z' (index 1 of ['N', 'Z']) but they do not match."
    ),
}
"""Texts of errors that are not PyTorch's, by expression; they give the names and the cause, too."""


def _numbered(shape: tuple[int, ...], names: tuple[str | None, ...] | None) -> Any:
    """The tensor that the expressions call `T`."""
    tensor = (weft.arange(prod(shape), dtype=weft.float32) * 0.13 + 0.1).reshape(shape)
    return tensor if names is None else tensor.rename(*names)


def _described(result: Any) -> dict[str, Any]:
    """A result as the file of cases writes it."""
    if isinstance(result, weft.Tensor):
        names, shape = list(result.names), list(result.shape)
        return {"t": "tensor", "names": names, "shape": shape, "dtype": str(result.dtype)}
    if isinstance(result, tuple) and any(isinstance(item, weft.Tensor) for item in result):
        return {"t": "seq", "items": [_described(item) for item in result]}
    if isinstance(result, tuple):
        return {"t": "value", "value": list(result)}
    if result is None or isinstance(result, (bool, int, float, str)):
        return {"t": "value", "value": result}
    return {"t": "other", "type": type(result).__name__}


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["expr"])
def test_names_are_pytorchs(case: dict[str, Any]):
    expression, want = case["expr"], case["want"]
    scope = {"torch": weft, "T": _numbered}
    if want["t"] != "error":
        assert _described(eval(expression, scope)) == want
        return
    with pytest.raises(getattr(builtins, want["type"])) as caught:
        eval(expression, scope)
    assert str(caught.value).splitlines()[0] in (want["msg"].rstrip(), _OWN_WORDS.get(expression))
