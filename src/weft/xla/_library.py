"""The library of operators of the XLA device."""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import XlaError


@dataclass(frozen=True)
class OperatorLibrary:
    """A namespace of operators, as PyTorch has them. `kind` says what it is for: "DEF" is to define operators."""

    ns: str
    kind: str

    def define(self, schema: str) -> str:
        """Raises `RuntimeError`: here operators are defined by functions, and not by schemas."""
        raise XlaError(
            f"XLA_LIB.define({schema!r}): operators are not defined by schemas; use weft.library.custom_op or "
            "weft.from_jax"
        )


XLA_LIB = OperatorLibrary("xla", "DEF")
