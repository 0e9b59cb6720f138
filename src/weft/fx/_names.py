"""Names: of nodes, which are unique in a graph, and of functions and types in the code that a graph generates.

Names of this package are said as those of `torch`: generated code is made to run where `torch` is this package.
"""

from __future__ import annotations

import builtins
import inspect
import keyword
import re
import sys
import types
from collections import abc, defaultdict
from collections.abc import Callable
from typing import ForwardRef, Literal, TypeVar

from weft._base.own_names import own_form
from weft._base.types import Annotation, AnyCallable, Arg, AttributeValue
from weft._import_paths.homes import home_in_torch
from weft.ops._namespaces import OpOverload, OpOverloadPacket
from weft.overrides import resolve_name

RESERVED = frozenset({"inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree"})
"""Names that generated code has besides the builtins."""


class Namespace:
    """Names that have been given, each once. `create_name` finds another one with a number at its end."""

    def __init__(self) -> None:
        self._by_object: dict[int, str] = {}
        self._used: set[str] = set()
        self._last_number: dict[str, int] = defaultdict(int)

    def create_name(self, candidate: str, obj: object = None) -> str:
        """A new identifier like `candidate`; that of `obj`, if this object has one already."""
        if obj is not None and id(obj) in self._by_object:
            return self._by_object[id(obj)]
        candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        base, number = candidate, 0
        if match := re.fullmatch(r"(.*)_(\d+)", candidate):
            base, number = match[1], int(match[2])
        number = number or self._last_number[base]
        while candidate in self._used or _is_taken(candidate, obj):
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._last_number[base] = number
        if obj is not None:
            self._by_object[id(obj)] = candidate
        return candidate


def _is_taken(name: str, obj: object) -> bool:
    if keyword.iskeyword(name) or name in RESERVED:
        return True
    missing = object()
    builtin = getattr(builtins, name, missing)
    return builtin is not missing and (obj is None or builtin is not obj)


def snake_case(text: str) -> str:
    """`BatchNorm` as `batch_norm`."""
    parts = [f"_{c}" if c.isupper() and at and text[at - 1].islower() else c for at, c in enumerate(text)]
    return "".join(parts).lower()


def node_name(target: AnyCallable | str) -> str:
    """The name that a node gets for what it calls or reads."""
    text = target if isinstance(target, str) else _own_name(target)
    if re.fullmatch(r"__.+__", text):
        text = text[2:-2]
    return snake_case(text)


def method_name(method: AnyCallable) -> str:
    """The name of a method of tensors."""
    return (resolve_name(method) or method.__name__).rpartition(".")[2]


def _own_name(function: AnyCallable) -> str:
    """The name of a function without that of its module, but with it where PyTorch's functions have it."""
    path = resolve_name(function)
    if path is None:
        return getattr(function, "__name__", type(function).__name__)
    *_, module, name = path.split(".")
    return f"{module}_{name}" if module in ("fft", "linalg", "special") else name


def public_name(obj: object) -> str | None:
    """The name under which a program that has imported `torch` finds an object of this package, or None."""
    if isinstance(obj, OpOverload | OpOverloadPacket):
        return f"torch.ops.{obj}"
    if (name := resolve_name(obj)) is not None:
        return name
    module, name = own_form(getattr(obj, "__module__", None) or ""), getattr(obj, "__qualname__", None)
    if name is None or module.partition(".")[0] != "weft":
        return None
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        path = ".".join(parts[:count])
        if _member(sys.modules.get(path), name) is obj:
            return f"torch{path.removeprefix('weft')}.{name}"
    return None


def _member(container: object, path: str) -> AttributeValue:
    for name in path.split("."):
        container = getattr(container, name, None)
    return container


def home_of(kind: type) -> str:
    """The module of a class; that of PyTorch's class for those of this package, such as `torch.nn.modules.linear`."""
    return re.sub(r"^weft\b", "torch", home_in_torch(kind.__module__, kind.__qualname__)[0])


def qualified_name(function: AnyCallable) -> str:
    """The name of a function for readers: `torch.relu`, `len`, `operator.add`, `my_module.my_function`."""
    if (name := public_name(function)) is not None:
        return name
    own = getattr(function, "__name__", type(function).__name__)
    if getattr(builtins, own, None) is function:
        return own
    module = getattr(function, "__module__", None) or "_"
    if inspect.ismethoddescriptor(function) and hasattr(function, "__objclass__"):
        return f"{function.__objclass__.__name__}.{own}"
    return f"{module}.{own}"


def target_text(target: AnyCallable | str) -> str:
    """The target of a node as graphs print it."""
    if isinstance(target, str):
        return target
    name = qualified_name(target)
    if "." not in name:
        return f"builtins.{name}"
    return name.replace("_operator.", "operator.", 1) if name.startswith("_operator.") else name


def type_text(annotation: Annotation, named: Callable[[str, Arg], str] = lambda name, _: name) -> str:
    """An annotation as text; `named(name, part)` gives the text of each type in it."""
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is ...:
        return "..."
    origin, parts = getattr(annotation, "__origin__", None), getattr(annotation, "__args__", None)
    if isinstance(annotation, types.UnionType):
        return " | ".join([type_text(part, named) for part in annotation.__args__])
    if hasattr(annotation, "__metadata__"):  # `Annotated`: its notes are no part of the type
        return type_text(origin, named)
    if origin is not None and parts is not None:
        texts = _part_texts(origin, parts, named)
        if (form := getattr(annotation, "_name", None)) == "Optional":
            texts = texts[:1]
        form = form or getattr(origin, "_name", None)
        return f"{_origin_text(annotation, origin, form, named)}[{', '.join(texts)}]"
    if isinstance(annotation, str | ForwardRef | TypeVar):
        text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else str(annotation)
        return repr(text)
    if isinstance(annotation, type):
        if annotation.__module__ == "builtins":
            return annotation.__qualname__
        return named(public_name(annotation) or f"{annotation.__module__}.{annotation.__qualname__}", annotation)
    return named(str(annotation), annotation)


_CALLABLE: object = abc.Callable


def _part_texts(origin: object, parts: tuple[object, ...], named: Callable[[str, Arg], str]) -> list[str]:
    """The texts of the parameters of a generic type, one for each that stands between commas."""
    if origin is Literal:
        return [repr(part) for part in parts]
    texts = [type_text(part, named) for part in parts]
    if origin is _CALLABLE and parts[0] is not ...:
        return [f"[{', '.join(texts[:-1])}]", texts[-1]]
    return texts or ["()"]  # `tuple[()]`


def _origin_text(annotation: Annotation, origin: object, form: str | None, named: Callable[[str, Arg], str]) -> str:
    """The text of a generic type without its parameters: `typing.List` or `list`, as the program has it."""
    typing = sys.modules["typing"]
    if type(annotation).__module__ == "typing" and form and hasattr(typing, form):
        return named(f"typing.{form}", getattr(typing, form))
    return type_text(origin, named)
