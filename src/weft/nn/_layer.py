"""Layers that only store their arguments and pass them to a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from weft.nn._module import Module

REQUIRED: Any = inspect.Parameter.empty
_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)


def layer(
    name: str,
    module: str,
    function: Callable[..., Any],
    doc: str,
    shown: str | None = "",
    *,
    settle: Callable[[Any], None] | None = None,
    hidden: tuple[str, ...] = (),
    **fields: Any,
) -> Any:
    """A class of layers without tensors. `module` is the file that it is defined in, for pickling.

    `fields` are the constructor's parameters with their defaults; they become attributes, and keywords of `function`
    after the inputs, except those in `hidden`. `settle(layer)` may adjust them. `shown` formats them for `repr`,
    where `inplace` is added if it is set; None shows nothing.
    """
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(field, kind, default=default) for field, default in fields.items()]
    signature = inspect.Signature([_SELF, *parameters])
    passed = tuple(field for field in fields if field not in hidden)

    def __init__(self: Module, *args: Any, **kwargs: Any) -> None:
        Module.__init__(self)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        self.__dict__.update({field: bound.arguments[field] for field in fields})
        if settle is not None:
            settle(self)

    def forward(self: Module, *inputs: Any) -> Any:
        own = self.__dict__
        return function(*inputs, **{field: own[field] for field in passed})

    def extra_repr(self: Module) -> str:
        if shown is None:
            return ""
        text = shown.format(**self.__dict__)
        if not self.__dict__.get("inplace") or "{inplace}" in shown:
            return text
        return f"{text}, inplace=True" if text else "inplace=True"

    __init__.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]  what `inspect` looks for
    body = {"__init__": __init__, "forward": forward, "extra_repr": extra_repr, "__doc__": doc, "__module__": module}
    return type(name, (Module,), body)
