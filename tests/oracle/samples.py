"""Cases from PyTorch's operator database. This file and those that import it need torch."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from tests.oracle.arrays import to_numpy
from tests.oracle.cases import DTYPES, Case, Tree, Unsupported, cotangent, decode, encode
from tests.oracle.known import RENAMED, REORDERED, SIGN_FREE, WRAPPED, is_undefined
from tests.oracle.replay import public
from weft import Tensor

_FORMS_AT_MOST = {"method": 1, "in-place": 4}  # samples per dtype of the forms that repeat a function

_IGNORED = ("device", "layout", "pin_memory", "memory_format", "generator")  # of no effect on a result here


def entries() -> dict[str, OpInfo]:
    """The database's entries by name."""
    return {entry.formatted_name: entry for entry in op_db}


def targets_of(entry: OpInfo) -> dict[str, str]:
    """The forms of an entry that Weft publishes, each with the path of what is called."""
    module, _, name = entry.name.rpartition(".")
    if entry.formatted_name in WRAPPED:
        return {}
    if entry.formatted_name in RENAMED:
        return {"method": RENAMED[entry.formatted_name]}
    found = {}
    if public(entry.name) is not None:
        found["function"] = entry.name
    if not module and hasattr(Tensor, name) and (entry.method_variant is not None or not found):
        found["method"] = name
    if not module and entry.inplace_variant is not None and hasattr(Tensor, f"{name}_"):
        found["in-place"] = f"{name}_"
    return found


def cases_of(entry: OpInfo, limit: int | None = None) -> Iterator[Case]:
    """Cases of every form and dtype, at most `limit` samples each, in the database's order."""
    forms = targets_of(entry)
    for dtype in DTYPES:
        if getattr(torch, dtype) not in entry.supported_dtypes("cpu"):
            continue
        samples = _samples(entry, dtype)[:limit]
        for at, (form, target) in enumerate(forms.items()):
            for sample in samples[: _FORMS_AT_MOST.get(form) if at else None]:
                if form == "in-place" and sample.broadcasts_input:
                    continue
                case = _answered(Case(entry.formatted_name, form, target, dtype), entry, sample)
                if case is not None:
                    yield case


def _samples(entry: OpInfo, dtype: str) -> list[SampleInput]:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    wanted = dtype == "float64" and entry.supports_autograd
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(entry.sample_inputs("cpu", getattr(torch, dtype), requires_grad=wanted))


def _answered(case: Case, entry: OpInfo, sample: SampleInput) -> Case | None:
    """The case with PyTorch's answer; None where PyTorch refuses, or a tree cannot hold the arguments."""
    called = {"function": entry.op, "method": entry.method_variant or entry.op, "in-place": entry.inplace_variant}
    call: Any = called[case.form]
    fixed = entry.op.keywords if isinstance(entry.op, partial) else {}
    reorder = REORDERED.get(entry.name, lambda *args: args) if case.form == "function" else lambda *args: args
    keep = partial(_encoded, arrays=case.arrays)
    kwargs = {k: v for k, v in sample.kwargs.items() if k not in _IGNORED}
    leaves: list[torch.Tensor] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            stored = encode((sample.input, *sample.args), keep)
            case.kwargs = encode(kwargs, keep)
            args = list(decode(stored, partial(_decoded, arrays=case.arrays, leaves=leaves)))
            options = decode(case.kwargs, partial(_decoded, arrays=case.arrays, leaves=leaves))
            if case.writes:
                args[0] = args[0].clone()
            outputs = call(*args, **options)
            _store(case, outputs, leaves)
        except (Unsupported, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, AssertionError):
            return None
    case.args = {"tuple": list(reorder(*stored["tuple"]))}
    case.kwargs["dict"] |= encode(fixed, keep)["dict"]
    return case


def _store(case: Case, outputs: Any, leaves: list[torch.Tensor]) -> None:
    """Keep an answer and its gradients."""
    keep = partial(_encoded, arrays=case.arrays, blank=is_undefined(case))
    case.outputs = encode(outputs, keep)
    flowing: list[torch.Tensor] = []
    decode(encode(outputs, lambda x: _note(x, flowing)), lambda tree: tree)
    if not leaves or not flowing or is_undefined(case):
        return
    if case.op in SIGN_FREE:
        flowing = [x.abs() for x in flowing]
    weights = [torch.from_numpy(cotangent(tuple(x.shape), x.is_complex())).to(x.dtype) for x in flowing]
    for grad in torch.autograd.grad(flowing, leaves, weights, allow_unused=True):
        case.gradients.append(None if grad is None else len(case.arrays))
        if grad is not None:
            case.arrays.append(to_numpy(grad))


def _note(x: Any, flowing: list[torch.Tensor]) -> Tree | None:
    """Collect the tensors of an answer through which gradients flow."""
    if isinstance(x, torch.Tensor) and x.requires_grad:
        flowing.append(x)
    return _encoded(x, arrays=[])


def _encoded(x: Any, arrays: list[np.ndarray], blank: bool = False) -> Tree | None:
    """A tensor or dtype as a tree; with `blank`, elements are stored as zeros."""
    match x:
        case torch.Tensor() if x.layout is torch.strided:
            array = to_numpy(x)
            arrays.append(np.zeros_like(array) if blank else array)
            return {"tensor": len(arrays) - 1, "grad": x.requires_grad}
        case torch.dtype():
            return {"dtype": str(x).removeprefix("torch.")}
        case torch.device():
            return str(x)
        case torch.Size():
            return {"tuple": list(x)}
    return None


def _decoded(tree: Tree, arrays: list[np.ndarray], leaves: list[torch.Tensor]) -> Any:
    if "dtype" in tree:
        return getattr(torch, tree["dtype"])
    array = np.array(arrays[tree["tensor"]])
    is_short = array.dtype == ml_dtypes.bfloat16
    made = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if is_short else torch.from_numpy(array)
    if tree["grad"]:
        leaves.append(made.requires_grad_())
    return made
