"""Cases run through Weft: many are recorded first, so that one compiled program computes them all."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

import weft
from tests.oracle.cases import Case, Tree, cotangent, decode
from tests.oracle.compare import difference
from tests.oracle.known import SIGN_FREE, reason_for
from weft import Tensor
from weft._api import LOCATIONS
from weft._tensor.assemble import PUBLIC
from weft.nn import functional

_AT_ONCE = 48  # cases in one program; longer ones compile no faster per case


@dataclass
class Result:
    """What became of a case. `fault` says what differs, or is empty; `excuse` why that is known."""

    case: Case
    fault: str
    excuse: str = ""


@dataclass
class Outcome:
    """What a call gave, not computed yet."""

    outputs: Any
    gradients: list[Tensor | None]


def public(path: str) -> Any:
    """The public function of a path such as "linalg.qr"; None when there is none."""
    module, _, name = path.rpartition(".")
    if module == "nn.functional":  # which also names functions of the package
        return getattr(functional, name, None)
    if not module and name in LOCATIONS:
        value = getattr(weft, name)
        return value if callable(value) else None  # `float` is a type there
    return PUBLIC.get(module, {}).get(name)


def check(cases: Iterable[Case]) -> Iterator[Result]:
    """Run the cases and compare each with its answer."""
    rest = iter(cases)
    while batch := list(islice(rest, _AT_ONCE)):
        outcomes = [_attempt(case) for case in batch]
        for case, outcome in zip(batch, outcomes, strict=True):
            fault = outcome if isinstance(outcome, str) else _fault(case, outcome)
            yield Result(case, fault, reason_for(case, fault) if fault else "")


def _attempt(case: Case) -> Outcome | str:
    try:
        return run(case)
    except Exception as error:  # whatever a faulty operator raises is part of the report
        return f"raises {type(error).__name__}: {error}"


def _fault(case: Case, outcome: Outcome) -> str:
    try:
        return difference(case, outcome.outputs, outcome.gradients)
    except Exception as error:  # the program of the whole batch may have failed: the case alone decides
        try:
            fresh = run(case)
            return difference(case, fresh.outputs, fresh.gradients)
        except Exception:
            return f"computing raises {type(error).__name__}: {str(error)[:300]}"


def run(case: Case) -> Outcome:
    """Call what the case names, and record its gradients."""
    leaves: list[Tensor] = []
    make = partial(_decoded, arrays=case.arrays, leaves=leaves)
    args, kwargs = list(decode(case.args, make)), decode(case.kwargs, make)
    if case.writes:
        args[0] = args[0].clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs = _callable(case)(*args, **kwargs)
        return Outcome(outputs, _gradients(case, outputs, leaves) if case.gradients else [])


def _callable(case: Case) -> Any:
    if case.form != "function":
        found = getattr(Tensor, case.target)
        return found.fget if isinstance(found, property) else found
    return public(case.target)


def _gradients(case: Case, outputs: Any, leaves: list[Tensor]) -> list[Tensor | None]:
    flowing = list(_flowing(case.outputs, outputs))
    if case.op in SIGN_FREE:
        flowing = [x.abs() for x in flowing]
    weights = [weft.tensor(cotangent(x.shape, x.is_complex()), dtype=x.dtype) for x in flowing]
    return list(weft.autograd.grad(flowing, leaves, weights, allow_unused=True))


def _flowing(tree: Tree, found: Any) -> Iterator[Tensor]:
    """The tensors of an answer through which PyTorch's gradients flow."""
    if isinstance(tree, dict) and "tensor" in tree:
        if tree["grad"]:
            yield found
    elif isinstance(tree, dict) and "tuple" in tree:
        for inner, part in zip(tree["tuple"], found, strict=True):
            yield from _flowing(inner, part)
    elif isinstance(tree, list):
        for inner, part in zip(tree, found, strict=True):
            yield from _flowing(inner, part)


def _decoded(tree: Tree, arrays: list[np.ndarray], leaves: list[Tensor]) -> Any:
    if "dtype" in tree:
        return getattr(weft, tree["dtype"])
    made = weft.tensor(arrays[tree["tensor"]])
    if tree["grad"]:
        leaves.append(made.requires_grad_())
    return made


def report(results: Iterable[Result]) -> str:
    """The faults that are not known, ten at most; empty when there are none."""
    faults = [f"{r.fault:.300} in {r.case.label:.300}" for r in results if r.fault and not r.excuse]
    more = [f"and {len(faults) - 10} more"] if len(faults) > 10 else []
    return "\n".join([*faults[:10], *more])
