"""Switches that are the variables of a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.errors import ArgumentError


@contextmanager
def set_within(module: dict[str, Any], settings: dict[str, Any]) -> Iterator[None]:
    """Set variables of a module, given as its `globals()`, within a block; `TypeError` for one that it has not."""
    unknown = [name for name in settings if name.startswith("_") or name not in module]
    if unknown:
        raise ArgumentError(f"flags() got an unexpected keyword argument {unknown[0]!r}")
    before = {name: module[name] for name in settings}
    module.update(settings)
    try:
        yield
    finally:
        module.update(before)


@contextmanager
def allow_nonbracketed_mutation() -> Iterator[None]:
    """A block in which switches may be set outside of `flags`, as they may everywhere here."""
    yield


fp32_precision = "none"
"""How products of float32 numbers are computed by default: "none" leaves it to `set_float32_matmul_precision`."""
