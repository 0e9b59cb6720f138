"""What operators are called in profiles."""

from __future__ import annotations

from weft._lazy.signature import Signature


def operator_name(signature: Signature) -> str:
    """The name of an operator with its namespace: that in which a user has defined it, or else "aten"."""
    return signature.name if "::" in signature.name else f"aten::{signature.name}"
