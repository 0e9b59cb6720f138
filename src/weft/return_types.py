"""The named tuples that functions with several results return, such as `return_types.max`."""

from __future__ import annotations

from typing import Any

from weft._tensor import assemble as _assemble  # noqa: F401  it makes all functions, and so the types
from weft._tensor.named_results import result_types

_OTHER_NAMES = {"linalg_slogdet": "slogdet"}


def __getattr__(name: str) -> Any:
    types = result_types()
    if name == "all_return_types":
        return list(types.values())
    name = _OTHER_NAMES.get(name, name)
    if name not in types:
        raise AttributeError(f"module 'weft.return_types' has no attribute {name!r}; there are {', '.join(types)}")
    return types[name]


def __dir__() -> list[str]:
    return [*result_types(), *_OTHER_NAMES, "all_return_types"]
