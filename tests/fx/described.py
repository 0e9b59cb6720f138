"""What is compared of a traced program: its nodes and its code as texts, and what it computes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tests.fx.programs import Program


def traced(torch: Any, program: Program) -> tuple[Any, Any]:
    """The program, and the module that it is traced to."""
    torch.manual_seed(0)
    original = program.make(torch)
    return original, torch.fx.symbolic_trace(original, **program.options(torch))


def described(module: Any) -> dict[str, Any]:
    """The nodes of a traced module, one line each, and its code, without differences that are none.

    Functions have their names and not their modules. In code, that of compiled functions is `nn.functional`.
    """
    nodes = []
    for node in module.graph.nodes:
        target = node.target if isinstance(node.target, str) else node.target.__name__
        nodes.append(plain(f"{node.op} {node.name} {target} {node.args} {node.kwargs}"))
    return {"nodes": nodes, "code": plain(module.code).split("\n")}


def plain(part: Any) -> Any:
    """Texts, also those in lists, without differences that are none."""
    if isinstance(part, list):
        return [plain(x) for x in part]
    if not isinstance(part, str):
        return part
    text = part.replace("torch._C._nn.", "torch.nn.functional.").replace("torch.functional.", "torch.")
    text = text.replace("fx._tracer.", "fx._symbolic_trace.")
    return re.sub(r"('?_stacklevel'?(?: =|:)) \d", r"\1 3", text)


def tensors(torch: Any, inputs: Any) -> Any:
    """Inputs with tensors in place of arrays."""
    if isinstance(inputs, np.ndarray):
        return torch.from_numpy(inputs.copy())
    if isinstance(inputs, dict):
        return {key: tensors(torch, x) for key, x in inputs.items()}
    return type(inputs)([tensors(torch, x) for x in inputs]) if isinstance(inputs, list | tuple) else inputs


def numbers(result: Any) -> Any:
    """A result with lists in place of tensors and sequences."""
    if hasattr(result, "detach"):
        return numbers(result.detach().tolist())
    if isinstance(result, dict):
        return {key: numbers(x) for key, x in result.items()}
    if isinstance(result, list | tuple):
        return [numbers(x) for x in result]
    return result if isinstance(result, int | float | str | None) else str(result)
