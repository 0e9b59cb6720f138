"""Calls of modules that are refused, in either framework, and how PyTorch refuses them.

`python -m tests.oracle.module_calls` records PyTorch's answers to the calls in `refusals.json`; a new call goes in as a
key with `null`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).with_suffix(".json")
REFUSALS: dict[str, list[str]] = json.loads(ANSWERS.read_text())
"""The builtin class of the exception and its text, by the call."""


def evaluated(text: str, lib: Any) -> Any:
    """The value of an expression in which `torch`, `nn`, `F` and `init` are a framework's."""
    return eval(text, {"torch": lib, "nn": lib.nn, "F": lib.nn.functional, "init": lib.nn.init})


def refusal(lib: Any, text: str) -> list[str] | None:
    """How a framework refuses a call, with its results read; None if it does not."""
    try:
        for x in _tensors(evaluated(text, lib)):
            x.detach().numpy()
    except Exception as error:  # whatever it is, is compared
        return described(error)
    return None


def described(error: Exception) -> list[str]:
    """The builtin class of an exception, and its text.

    Where classes are defined is left out, and the number of an argument, whose name stands beside it.
    """
    kind = next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
    text = re.sub(r"<class '(torch|weft)\.[\w.]*\.(\w+)'>", r"<class '\2'>", str(error))
    return [kind.__name__, text.replace(" (position 1)", "")]


def _tensors(x: Any) -> Iterator[Any]:
    if isinstance(x, (tuple, list)):
        for part in x:
            yield from _tensors(part)
    elif hasattr(x, "detach"):
        yield x
