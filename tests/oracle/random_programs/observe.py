"""What a program has left: everything that one can see of its variables, and which of its tensors share elements."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracle.random_programs.source import Run

Facts = dict[str, Any]
"""What was seen, by what it is of, such as "t1.stride()"; an exception where looking raised one."""

_FACTS: dict[str, Callable[[Any], Any]] = {
    "shape": lambda x: tuple(x.shape),
    "dtype": lambda x: str(x.dtype).rpartition(".")[2],
    "requires_grad": lambda x: x.requires_grad,
    "is_leaf": lambda x: x.is_leaf,
    "retains_grad": lambda x: x.retains_grad,
    "grad_fn": lambda x: x.grad_fn is None,
    "stride()": lambda x: x.stride(),
    "storage_offset()": lambda x: x.storage_offset(),
    "is_contiguous()": lambda x: x.is_contiguous(),
}


@dataclass(frozen=True)
class Observer:
    """Looks at tensors of one library, whose elements `array` gives."""

    array: Callable[[Any], np.ndarray]

    def __call__(self, run: Run) -> Facts:
        """Everything there is to see, at the end of a program. It ends with writes to each tensor."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._facts(run)

    def _facts(self, run: Run) -> Facts:
        facts: Facts = {f"line {number}": run.errors.get(number) for number in range(run.count)}
        variables, tensors = run.variables, run.tensors
        names = {}  # of objects, the first that they have
        for name, x in variables.items():
            facts[f"{name} is"] = names.setdefault(id(x), name) if name in tensors else x
        for what, look in _FACTS.items():
            for name, x in tensors.items():
                facts[f"{name}.{what}"] = _seen(look, x)
        kept = [(f"{name}.tolist()", _copy(x)) for name, x in tensors.items()]
        kept += [(f"{name}.grad", _seen(_copy_of_grad, x)) for name, x in tensors.items()]
        for number, (name, x) in enumerate(tensors.items()):
            facts[f"writing {name}"] = _seen(_write, x, number, run.library)
            kept += [
                (f"{other} after writing {name}", _seen(_copy, y)) for other, y in tensors.items() if other != name
            ]
        for name, x in kept:
            facts[name] = _seen(self.array, x) if isinstance(x, run.library.Tensor) else x
        return facts


def _seen(look: Callable[..., Any], *args: Any) -> Any:
    try:
        return look(*args)
    except Exception as error:
        return error.with_traceback(None)


def _copy(x: Any) -> Any:
    return x.detach().clone()


def _copy_of_grad(x: Any) -> Any:
    return x.grad.detach().clone() if x.is_leaf and x.grad is not None else None


def _write(x: Any, number: int, library: Any) -> None:
    """Fill a tensor with what is seen in its aliases."""
    with library.no_grad():
        x.fill_(x.numel() > 0 and not x.reshape(-1)[0].item() if x.dtype is library.bool else 40 + number)
