"""Classes of layers that store their arguments and pass them to a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import takewhile
from typing import Any, TypeAlias

from weft._base.generated import execute
from weft._base.overriding import acts_for_user
from weft._base.types import AnyCallable, Arg, Kwargs
from weft.nn._module import Module

REQUIRED: Any = inspect.Parameter.empty

LayerClass: TypeAlias = type[Module]
"""A class of layers that a line of a table makes: a checker knows neither its constructor nor its attributes."""

Settle = Callable[[Module], None]
"""Completes the attributes of a new layer."""


def layer(
    name: str,
    module: str,
    function: AnyCallable,
    doc: str,
    repr_format: str | None = "",
    *,
    base: LayerClass = Module,
    settle: Settle | None = None,
    hidden: tuple[str, ...] = (),
    by_keyword: bool = False,
    **fields: Arg,
) -> LayerClass:
    """A class of layers without tensors. `module` is the name of the module that defines it, for pickling; `base` is a
    class of modules whose own constructor need not run.

    `fields` are the constructor's parameters with their defaults, keyword-only if `by_keyword`. They become attributes,
    and are passed to `function` by name, except those in `hidden`. `forward` takes the parameters of `function` that
    come before the first field; `function` is given `training` if it has such a parameter. `settle(layer)` may change
    the attributes. `repr_format` formats them for `repr`, and `inplace` is added if it is set; None shows nothing.
    """

    def extra_repr(self: Module) -> str:
        if repr_format is None:
            return ""
        text = repr_format.format(**self.__dict__)
        if not self.__dict__.get("inplace") or "{inplace}" in repr_format:
            return text
        return f"{text}, inplace=True" if text else "inplace=True"

    body = _methods(name, function, fields, hidden, by_keyword, settle)
    return type(name, (base,), {**body, "extra_repr": extra_repr, "__doc__": doc, "__module__": module})


def _methods(
    name: str,
    function: AnyCallable,
    fields: Kwargs,
    hidden: tuple[str, ...],
    by_keyword: bool,
    settle: Settle | None,
) -> dict[str, AnyCallable]:
    """The constructor and `forward`, generated as source, so that Python itself words the errors about arguments."""
    parameters = inspect.signature(function).parameters
    leading = takewhile(lambda parameter: parameter.name not in fields, parameters.values())
    inputs = [parameter.name for parameter in leading if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    passed = [field for field in fields if field not in hidden] + ["training"] * ("training" in parameters)
    defaults = {name: parameters[name].default for name in inputs} | fields
    settings = [*["*"] * by_keyword, *(_spelled(field, defaults) for field in fields)]
    source = [
        f"def __init__({', '.join(['self', *settings])}):",
        "    _Module.__init__(self)",
        *(f"    self.{field} = {field}" for field in fields),
        "    _settle(self)" if settle else "",
        f"def forward({', '.join(['self', *(_spelled(input, defaults) for input in inputs)])}):",
        f"    return _function({', '.join([*inputs, *(f'{field}=self.{field}' for field in passed)])})",
    ]
    scope = {"_Module": Module, "_function": function, "_settle": settle}
    scope |= {f"d_{name}": default for name, default in defaults.items()}
    execute("\n".join(source), f"nn.{name}", scope)
    methods: dict[str, Any] = {method: scope[method] for method in ("__init__", "forward")}
    for method, compiled in methods.items():
        compiled.__qualname__ = f"{name}.{method}"
    acts_for_user(methods["forward"])
    return methods


def _spelled(name: str, defaults: Kwargs) -> str:
    return name if defaults[name] is REQUIRED else f"{name}=d_{name}"
