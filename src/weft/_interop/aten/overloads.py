"""Calls of PyTorch's operators by name: which overload takes which arguments, and which function computes it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NoReturn

from weft._base.device import device
from weft._base.dtype import DType
from weft._base.layout import layout, memory_format
from weft._base.types import AnyCallable, Arg, Args, Kwargs, Result
from weft._interop.aten.rules import REDUCTIONS, RULES
from weft._tensor.assemble import PUBLIC
from weft._tensor.generator import Generator
from weft._tensor.kind_names import kind_of
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError
from weft.ops._aten import AtenOverload, AtenPacket, texts_of
from weft.ops._schema import Argument
from weft.ops._table import TABLE

_MODULES: dict[str, Mapping[str, AnyCallable]] = {
    "linalg_": PUBLIC["linalg"], "fft_": PUBLIC["fft"], "special_": PUBLIC["special"],
}  # fmt: skip

# --- which function computes an operator --------------------------------------------------------------------------


@cache
def function_of(name: str) -> AnyCallable | None:
    """The function that computes a packet: a rule for an operator that is not public in PyTorch, or the public one."""
    if name in RULES:
        return RULES[name]
    for places in (PUBLIC[""], PUBLIC["nn.functional"]):
        if name in places:
            return places[name]
    for prefix, places in _MODULES.items():
        if name.startswith(prefix) and name.removeprefix(prefix) in places:
            return places[name.removeprefix(prefix)]
    method = None if name.startswith("__") else getattr(Tensor, name, None)
    return method if callable(method) else None


def name_of_function(function: Arg) -> str:
    """The name of the packet that a public function computes: `linalg_norm`, `add_`."""
    home, _, name = f"{function.__module__}.{function.__qualname__}".rpartition(".")
    prefix = {"weft.linalg": "linalg_", "weft.fft": "fft_", "weft.special": "special_"}.get(home, "")
    return _SPELLED.get(name, prefix + name)


_SPELLED = {
    "absolute": "abs", "multiply": "mul", "multiply_": "mul_", "subtract": "sub", "subtract_": "sub_",
    "divide": "div", "divide_": "div_", "true_divide": "div", "true_divide_": "div_", "negative": "neg",
    "negative_": "neg_", "concat": "cat", "concatenate": "cat", "clip": "clamp", "clip_": "clamp_", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne", "swapaxes": "transpose",
    "swapdims": "transpose", "__rsub__": "rsub", "logsigmoid": "log_sigmoid", "__iadd__": "add_", "__isub__": "sub_",
    "__imul__": "mul_", "__itruediv__": "div_", "__ipow__": "pow_", "__pow__": "pow", "__invert__": "bitwise_not",
    "__ifloordiv__": "floor_divide_", "max_dim": "max", "min_dim": "min", "one_hot_classes": "one_hot",
}  # fmt: skip
"""Public functions that PyTorch computes by an operator of another name."""

# --- which overload takes the arguments ---------------------------------------------------------------------------


def resolve(packet: AtenPacket, args: Args, kwargs: Kwargs) -> tuple[AtenOverload, Args, Kwargs] | None:
    """The first overload that takes the arguments, and these as PyTorch passes them on; None if none does."""
    texts = list(texts_of(packet.__name__))
    if packet.__name__.removesuffix("_") in _WITH_NUMBERS:
        texts.sort(key=lambda name: not name.startswith("Tensor"))
    for name in texts:
        overload: AtenOverload = getattr(packet, name or "default")
        bound = bind(overload, args, kwargs)
        if bound is not None:
            return overload, *as_passed(overload, bound)
    return None


_WITH_NUMBERS = frozenset({"add", "sub", "mul", "div", "floor_divide"})
"""Operators that get numbers where the schema says `Tensor`: of these, numbers have no overload of their own."""


def bind(overload: AtenOverload, args: Args, kwargs: Kwargs) -> Kwargs | None:
    """The arguments of a call by the names of the schema; None if the overload does not take them."""
    parameters = overload._schema.arguments
    positional = [p for p in parameters if not p.kwarg_only]
    if len(args) > len(positional):
        if not positional or not positional[-1].schema_type.startswith(("SymInt[", "int[")):
            return None
        at = len(positional) - 1
        args = (*args[:at], args[at:])  # sizes one by one
    bound: Kwargs = dict(zip([p.name for p in positional], args, strict=False))
    for name, value in kwargs.items():
        own = "self" if name == "input" and positional and positional[0].name == "self" else name
        if own in bound:
            return None
        bound[own] = value
    takes_numbers = overload.overloadpacket.__name__.removesuffix("_") in _WITH_NUMBERS
    for at, p in enumerate(parameters):
        if p.name not in bound:
            if not p.has_default_value():
                return None
            continue
        value = bound[p.name]
        if not fits(p.schema_type, value, takes_numbers and at > 0):
            if not (value is None and p.has_default_value()):
                return None
            del bound[p.name]  # a public function's own default
    return bound if bound.keys() <= {p.name for p in parameters} else None


def as_passed(overload: AtenOverload, bound: Kwargs) -> tuple[Args, Kwargs]:
    """Arguments by position, without the last ones that are at their defaults, and by keyword if only that is possible.

    Sizes are lists.
    """
    args: list[Arg] = []
    kwargs: Kwargs = {}
    waiting: list[Arg] = []
    for p in overload._schema.arguments:
        value = _as_list(bound[p.name], p.schema_type) if p.name in bound else p.default_value
        is_default = p.has_default_value() and _same(value, p)
        if p.kwarg_only:
            if not is_default:
                kwargs[p.name] = value
        elif is_default:
            waiting.append(value)
        else:
            args += [*waiting, value]
            waiting.clear()
    return tuple(args), kwargs


def _same(value: Arg, p: Argument) -> bool:
    if isinstance(value, Tensor):
        return False
    default = _as_list(p.default_value, p.schema_type)
    if isinstance(default, str):
        return str(value).removeprefix("torch.").removeprefix("weft.") == default
    return value is default or (type(value) is type(default) and value == default)


def _as_list(value: Arg, kind: str) -> Arg:
    """A value as a list, if the type is one; one element stands for as many as the type says."""
    if "[" not in kind or value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, int | float):
        length = kind.rpartition("[")[2].partition("]")[0]
        return [value] * int(length or 1)
    return list(value)


def fits(kind: str, value: Arg, takes_numbers: bool = False) -> bool:
    """Whether a value is of a type that a schema names; an element stands for a list of known length."""
    if kind.endswith("?"):
        return value is None or fits(kind[:-1], value)
    if kind.endswith("]"):
        base, _, length = kind[:-1].rpartition("[")
        if isinstance(value, list | tuple):
            return all(fits(base, x) for x in value)
        return base != "Tensor" and (bool(length) or base.endswith("Int") or base == "int") and fits(base, value)
    if kind == "Tensor":
        return isinstance(value, Tensor) or (takes_numbers and isinstance(value, int | float | complex))
    test = _TYPES.get(kind)
    return test is not None and isinstance(value, test) and not (kind in _NO_BOOL and isinstance(value, bool))


_NO_BOOL = ("int", "SymInt", "float")
_TYPES: dict[str, Any] = {
    "Scalar": (int, float, complex), "int": int, "SymInt": int, "float": (int, float), "bool": bool, "str": str,
    "ScalarType": DType, "Device": (device, str, int), "Layout": layout, "MemoryFormat": memory_format,
    "Generator": Generator,
}  # fmt: skip

# --- calls --------------------------------------------------------------------------------------------------------


def compute(overload: AtenOverload, args: Args, kwargs: Kwargs) -> Result:
    """The result of the function that computes an overload, of arguments that it takes."""
    name = overload.overloadpacket.__name__
    function = function_of(name)
    if function is None:
        refuse(overload, args, kwargs)
    rest = {key: value for key, value in kwargs.items() if value is not None}
    names = [p.name for p in overload._schema.arguments]
    if "reduction" in names and name not in RULES:
        at = names.index("reduction")
        if len(args) > at:
            before = dict(zip(names[at + 1 :], args[at + 1 :], strict=False))
            return function(*args[:at], reduction=REDUCTIONS[args[at]], **before, **rest)
    return function(*args, **rest)


def refuse(what: AtenOverload | AtenPacket, args: Args, kwargs: Kwargs) -> NoReturn:
    """Raise `TypeError` for a call that nothing computes, and say what there is."""
    name = what.__name__.partition(".")[0]
    types = ", ".join([kind_of(x) for x in args] + [f"{key}={kind_of(x)}" for key, x in kwargs.items()])
    texts = texts_of(name)
    if texts:
        wanted = "; ".join([f"aten::{text}" for text in texts.values()][:4])
        if isinstance(what, AtenOverload):
            wanted = str(what._schema)
        raise ArgumentError(f"torch.ops.{what} does not take ({types}); expected {wanted}")
    op = TABLE.get(name)
    instead = "the function of torch or torch.nn.functional that computes it"
    if op is not None and op.public.has_forms():
        instead = f"torch.{op.public.module}.{name}()".replace("..", ".")
    raise ArgumentError(f"torch.ops.{what} is the name of an operator that is not computed here: call {instead}")
