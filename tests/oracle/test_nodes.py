"""Operators' nodes have PyTorch's names, on samples of PyTorch's operator database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.oracle import replay
from tests.oracle.cases import Case, decode

samples = pytest.importorskip("tests.oracle.samples", reason="needs torch", exc_type=ImportError)
torch = pytest.importorskip("torch")

pytestmark = pytest.mark.oracle

_ENTRIES = {
    name: entry
    for name, entry in samples.entries().items()
    if entry.supports_autograd and torch.float64 in entry.supported_dtypes("cpu") and samples.targets_of(entry)
}

COMPOSED = frozenset(Path(__file__).with_name("composed_nodes.txt").read_text(encoding="utf-8").split())
"""Entries whose last operator is another one here, as one of the two is composed, or whose overloads are one row."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in _ENTRIES if name not in COMPOSED])
def test_names_of_nodes(name: str):
    entry, forms = _ENTRIES[name], samples.targets_of(_ENTRIES[name])
    form = "function" if "function" in forms else "method"
    for sample in samples._samples(entry, "float64")[:3] if form in forms else ():
        case = samples._answered(Case(name, form, forms[form], "float64"), entry, sample)
        if case is not None:
            assert _ours(case) == _theirs(entry, form, sample), case.label


def _ours(case: Case) -> list[str]:
    args, kwargs = [
        decode(each, lambda x: replay._decoded(x, arrays=case.arrays, leaves=[])) for each in (case.args, case.kwargs)
    ]
    results = replay._callable(case)(*args, **kwargs)
    return [type(x.grad_fn).__name__ for x in replay._flowing(case.outputs, results)]


def _theirs(entry: Any, form: str, sample: Any) -> list[str]:
    call = entry.op if form == "function" else entry.method_variant or entry.op
    flowing: list[Any] = []
    samples.encode(call(sample.input, *sample.args, **sample.kwargs), lambda x: samples._note(x, flowing))
    return [type(x.grad_fn).__name__ for x in flowing]
