"""Wrong calls from PyTorch's operator database, and how both frameworks refuse them. Needs torch.

`python -m tests.oracle.error_inputs` records PyTorch's answers to the calls in `tests/refusals.json`, too; a new call
goes in as a key with `null`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.opinfo.core import ErrorInput, OpInfo

from tests.nn.refusals import refusal
from tests.oracle import samples
from tests.oracle.known import REORDERED
from tests.oracle.modules import converted, quietly, raised, texts_differ
from tests.oracle.replay import public
from weft import Tensor
from weft.errors import WeftError


def entries() -> dict[str, OpInfo]:
    """The database's entries that have wrong calls, and a form here."""
    return {
        name: entry
        for name, entry in samples.entries().items()
        if entry.error_inputs_func is not None and samples.targets_of(entry)
    }


def faults_of(entry: OpInfo) -> Iterator[str]:
    """What differs in the wrong calls of every form of an entry: those that PyTorch refuses on the CPU."""
    forms = samples.targets_of(entry)
    with quietly():
        wrong_calls = list(entry.error_inputs("cpu"))
    for wrong in wrong_calls:
        if not _is_convertible((wrong.sample_input.input, wrong.sample_input.args, wrong.sample_input.kwargs)):
            continue
        for form, target in forms.items():
            fault = _difference(entry, form, target, wrong)
            if fault:
                yield f"{target} [{form}] {_shown(wrong)}: {fault}"


def _difference(entry: OpInfo, form: str, target: str, wrong: ErrorInput) -> str:
    """What differs between two refusals: the builtin class, or the text, of which the database says what counts."""
    sample = wrong.sample_input
    called = {"function": entry.op, "method": entry.method_variant or entry.op, "in-place": entry.inplace_variant}
    if form != "function" and not isinstance(sample.input, torch.Tensor):
        return ""  # a method of something else is the descriptor's business
    with quietly():
        memo: dict[int, Any] = {}
        args, kwargs = converted((sample.input, *sample.args), memo), converted(sample.kwargs, memo)
        theirs = raised(lambda: called[form](sample.input, *sample.args, **sample.kwargs))
        if theirs is None or "unexpected keyword argument" in str(theirs):  # not refused, or no such parameter
            return ""
        if form == "function":
            args = REORDERED.get(entry.name, lambda *given: given)(*args)
            kwargs |= entry.op.keywords if isinstance(entry.op, partial) else {}
        ours = raised(lambda: _callable(form, target)(*args, **kwargs))
    fault = texts_differ(theirs, ours)
    if fault.startswith("says") and re.search(wrong.error_regex, str(ours)):
        return ""
    return fault or ("" if isinstance(ours, WeftError) else f"leaks {ours!r}")


def _callable(form: str, target: str) -> Any:
    if form == "function":
        return public(target)
    found = getattr(Tensor, target)
    return found.fget if isinstance(found, property) else found


def _is_convertible(x: Any) -> bool:
    """Whether every tensor in a structure has elements, and no more dims than NumPy takes."""
    if isinstance(x, torch.Tensor):
        return x.device.type == "cpu" and x.ndim <= 32
    if isinstance(x, dict):
        return all(map(_is_convertible, x.values()))
    return not isinstance(x, tuple | list) or all(map(_is_convertible, x))


def _shown(wrong: ErrorInput) -> str:
    sample = wrong.sample_input
    return f"{_picture((sample.input, *sample.args))} {_picture(sample.kwargs)}"


def _picture(x: Any) -> Any:
    """A structure with tensors shown by type and shape."""
    if isinstance(x, torch.Tensor):
        return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
    if isinstance(x, dict):
        return {name: _picture(part) for name, part in x.items()}
    return [_picture(part) for part in x] if isinstance(x, tuple | list) else x


# --- calls that are written down ------------------------------------------------------------------------------

ANSWERS = Path(__file__).parents[1] / "refusals.json"
REFUSALS: dict[str, list[str]] = json.loads(ANSWERS.read_text())


def answer(call: str) -> list[str] | None:
    """How PyTorch refuses a call: the builtin class and the text, less the places of arguments."""
    with quietly():
        found = refusal(torch, call)
    return found and [found[0], re.sub(r" \(position \d+\)", "", found[1])]


def main() -> None:
    """Record how PyTorch refuses the calls of `tests/refusals.json`."""
    ANSWERS.write_text(json.dumps({call: answer(call) for call in REFUSALS}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
