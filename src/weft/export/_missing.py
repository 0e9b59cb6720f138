"""Names of `torch.export` that this package does not have, with the reason in the error."""

from __future__ import annotations

from weft._base.types import AttributeValue

_ATEN = "programs are made of StableHLO's operators, not of ATen's, so there is nothing to decompose"
_TREE = "a program is one function, and keeps no calls of submodules; use ExportedProgram.module()"
_REASONS = {
    "Constraint": "give sizes as weft.export.Dim",
    "CustomDecompTable": _ATEN,
    "default_decompositions": _ATEN,
    "ExportBackwardSignature": "a step of training is exported with its backward pass; see graph_signature.mutated",
    "FlatArgsAdapter": _TREE,
    "ModuleCallEntry": _TREE,
    "ModuleCallSignature": _TREE,
    "unflatten": _TREE,
    "UnflattenedModule": _TREE,
}


def __getattr__(name: str) -> AttributeValue:
    reason = f": {_REASONS[name]}" if name in _REASONS else ""
    raise AttributeError(f"module 'weft.export' has no attribute {name!r}{reason}")
