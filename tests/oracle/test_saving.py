"""Every operator refuses a second backward pass where PyTorch refuses it, on samples of PyTorch's operator database."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import weft
from tests.oracle import replay
from tests.oracle.cases import Case, cotangent, decode

samples = pytest.importorskip("tests.oracle.samples", reason="needs torch", exc_type=ImportError)
torch = pytest.importorskip("torch")

pytestmark = pytest.mark.oracle

_LIMIT = min(int(os.environ.get("WEFT_ORACLE_SAMPLES", "10")) or 10, 3)
_ENTRIES = {
    name: entry
    for name, entry in samples.entries().items()
    if entry.supports_autograd and torch.float64 in entry.supported_dtypes("cpu") and samples.targets_of(entry)
}

_SLOPELESS = "without a slope: nothing is read, and PyTorch saves its arguments all the same"
_COMPOSED = "composed of other operators here"
_WRITE = "the row that writes through a view, which is refused as in-place writes are"
KNOWN = {
    "as_strided": _COMPOSED,
    "as_strided_copy": _COMPOSED,
    "as_strided_partial_views": _COMPOSED,
    "as_strided_scatter": _WRITE,
    "diagonal_scatter": _WRITE,
    "gradient": _COMPOSED,
    "linalg_lstsq": "has no derivative here",
    "linalg_norm": _SLOPELESS,
    "linalg_norm_subgradients_at_zero": _SLOPELESS,
    "linalg_vander": _COMPOSED,
    "nn_functional_adaptive_max_pool3d": "windows of one element",
    "nn_functional_pad_circular": "one row pads in all modes, of which the common one saves nothing",
    "nn_functional_pad_reflect": "as pad_circular",
    "nn_functional_pad_replicate": "as pad_circular",
    "nn_functional_pad_replicate_negative": "as pad_circular",
    "norm": _SLOPELESS,
    "repeat_interleave": _COMPOSED,
    "select_scatter": _WRITE,
    "slice_scatter": _WRITE,
    "zero_": "writes to a leaf",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _ENTRIES)
def test_second_passes(name: str):
    if name in KNOWN:
        pytest.skip(KNOWN[name])
    entry, forms = _ENTRIES[name], samples.targets_of(_ENTRIES[name])
    form = "function" if "function" in forms else "method"
    for sample in samples._samples(entry, "float64")[:_LIMIT] if form in forms else ():
        case = samples._answered(Case(name, form, forms[form], "float64"), entry, sample)
        if case is not None and case.gradients and case.arrays[0].ndim and all(a.size for a in case.arrays):
            assert _ours(case) == _theirs(entry, form, sample), case.label


def _ours(case: Case) -> str:
    make = partial(replay._decoded, arrays=case.arrays, leaves=[])
    args, kwargs = list(decode(case.args, make)), decode(case.kwargs, make)
    flowing = list(replay._flowing(case.outputs, replay._callable(case)(*args, **kwargs)))
    weights = [weft.tensor(cotangent(x.shape, x.is_complex()), dtype=x.dtype) for x in flowing]
    return _twice(partial(weft.autograd.backward, flowing, weights))


def _theirs(entry: Any, form: str, sample: Any) -> str:
    call = entry.op if form == "function" else entry.method_variant or entry.op
    flowing: list[Any] = []
    samples.encode(call(sample.input, *sample.args, **sample.kwargs), lambda x: samples._note(x, flowing))
    weights = [torch.from_numpy(cotangent(tuple(x.shape), x.is_complex())).to(x.dtype) for x in flowing]
    return _twice(partial(torch.autograd.backward, flowing, weights))


def _twice(backward: Callable[[], None]) -> str:
    backward()
    try:
        backward()
    except RuntimeError as error:
        return "refused" if "a second time" in str(error) else str(error)
    return "passed"
