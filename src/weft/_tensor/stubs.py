"""Type stubs of everything derived from the operator table; `python -m weft._tensor.stubs` writes them.

`_tensor/derived.pyi` has the methods of tensors; `__init__.pyi` and `nn/functional.pyi` have the public functions. A
test fails if one of them is stale.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from weft._api import LOCATIONS, MODULES
from weft._import_paths.finder import children
from weft._tensor.assemble import PUBLIC
from weft._tensor.codegen import signature_text
from weft._tensor.derived import Derived
from weft.ops._kinds import Kind, Param
from weft.ops._table import TABLE, OpDef

_ROOT = Path(__file__).resolve().parent.parent
_TYPES = {
    Kind.ARRAY: "Tensor",
    Kind.OPERAND: "Tensor | Number",
    Kind.SCALAR: "Tensor | Number",
    Kind.ARRAYS: "Sequence[Tensor]",
    Kind.DIM: "int | str",
    Kind.DIMS: "int | str | Sequence[int | str]",
    Kind.SHAPE: "Sequence[int]",
    Kind.DTYPE: "DType",
}
_BY_TEXT = {
    "DimList": "Sequence[int | str]",
    "IntDim": "int",
    "OwnDim": "int | str",
    "OwnDim | None": "int | str",
    "Real": "Tensor | float",
    "Real | None": "Tensor | float",
    "Whole": "Tensor | int",
    "Whole | None": "Tensor | int",
}
_STATIC = {
    **{text: text for text in ("bool", "int", "float", "str", "int | float")},
    "Ints": "int | Sequence[int]",
    "Ord": "float | str",
    "OutputSize": "int | Sequence[int | None] | None",
    "Padding": "str | int | Sequence[int]",
    "tuple[int, ...]": "Sequence[int]",
}
_KEYWORDS = {
    "generator": "Generator | None",
    "device": "Device | str | int | None",
    "requires_grad": "bool",
    "pin_memory": "bool",
    "layout": "Layout | None",
    "axis": "int | str | Sequence[int | str] | None",
    "keepdims": "bool",
}
_ANNOTATIONS = {
    **{name: name for name in ("Tensor", "Number", "DType", "Generator", "Size", "UntypedStorage", "Any", "None")},
    **{
        name: name for name in ("int", "float", "bool", "str", "bytes", "tuple", "list", "dict", "Callable", "Sequence")
    },
    "AnyCallable": "Callable[..., Any]",
    "Arg": "Any",
    "Result": "Any",
    "Tensors": "tuple[Tensor, ...]",
    "Dim": "int | str",
    "device": "Device",
    "layout": "Layout",
    "memory_format": "MemoryFormat",
}
"""What the annotations of composites are in a stub. Others, which no stub knows, become `Any`."""

_PROPERTIES = {
    "layout": "Layout",
    "name": "None",
    "names": "tuple[str | None, ...]",
    "output_nr": "int",
    "grad_fn": "Node | None",
}
"""Types of properties that are not tensors."""

_VALUES = ("values", "indices")
_FIELDS: dict[str, tuple[str, ...]] = {
    "cholesky_ex": ("L", "info"),
    "eig": ("eigenvalues", "eigenvectors"),
    "inv_ex": ("inverse", "info"),
    "kthvalue": _VALUES,
    "ldl_factor": ("LD", "pivots"),
    "ldl_factor_ex": ("LD", "pivots", "info"),
    "lstsq": ("solution", "residuals", "rank", "singular_values"),
    "lu": ("P", "L", "U"),
    "lu_factor": ("LU", "pivots"),
    "lu_factor_ex": ("LU", "pivots", "info"),
    "lu_unpack": ("P", "L", "U"),
    "qr": ("Q", "R"),
    "solve_ex": ("result", "info"),
    "svd": ("U", "S", "V"),
}
"""The names in the results of composites that return such ones."""

_Form = tuple[str, str]
_EXTREME: tuple[_Form, ...] = (
    ("", "Tensor"),
    ("dim: int | str, keepdim: bool = ...", "ValuesIndices"),
    ("other: Tensor", "Tensor"),
)
_MEDIAN: tuple[_Form, ...] = (("", "Tensor"), ("dim: int | str, keepdim: bool = ...", "ValuesIndices"))
_FORMS: dict[tuple[str, str], tuple[_Form, ...]] = {
    ("max", "input"): _EXTREME,
    ("min", "input"): _EXTREME,
    ("median", "input"): _MEDIAN,
    ("nanmedian", "input"): _MEDIAN,
    ("nonzero", "input"): (
        ("*, as_tuple: Literal[False] = ..., out: Tensor | None = ...", "Tensor"),
        ("*, as_tuple: Literal[True]", "tuple[Tensor, ...]"),
    ),
    ("type", "input"): (("", "str"), ("dtype: DType | str | type[Any], non_blocking: bool = ...", "Tensor")),
    ("where", "condition"): (
        ("", "tuple[Tensor, ...]"),
        ("input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = ...", "Tensor"),
    ),
    ("stride", "input"): (("dim: None = ...", "tuple[int, ...]"), ("dim: int", "int")),
}
"""By name and first parameter, (further parameters, result) of composites with results of several types."""


def _type(param: Param) -> str:
    text = _BY_TEXT.get(param.text) or _TYPES.get(param.kind) or _STATIC.get(param.text.removesuffix(" | None"), "Any")
    return f"{text} | None" if (param.optional or param.default is None) and text != "Any" else text


def _one_by_one(param: Param) -> str:
    """The type of sizes, or dims, that are separate arguments."""
    return _TYPES[Kind.DIMS] if param.text == "DimList" else "int | Sequence[int]"


def _named(fields: Sequence[str]) -> str:
    """The type of results with these names."""
    return "".join(part[0].upper() + part[1:] for field in fields for part in field.split("_"))


def _tuple(fields: Sequence[str]) -> str:
    """The tensors that results with these names are written to."""
    return f"tuple[{', '.join(['Tensor'] * len(fields))}] | None"


def _row(op: OpDef, name: str, *, method: bool = False) -> str:
    """The stub of a row's function or method."""
    types = {p.name: _type(p) for p in op.params} | {f"*v_{p.name}": _one_by_one(p) for p in op.params}
    parts: list[str] = []
    for at, text in enumerate(signature_text(op, lambda _: "...")):
        bare, _, default = text.partition("=")
        kind = types.get(bare) or _KEYWORDS.get(bare)
        if bare == "out":
            kind = _tuple(op.outputs) if op.outputs else "Tensor | None"
        if bare == "out" and name.endswith("_"):
            continue
        if method and at == 0:
            parts.append("self")
        elif bare == "*" or kind is None:
            parts.append(text)
        else:
            optional = " | None" if default == "None" and "None" not in kind and kind != "Any" else ""
            parts.append(f"{bare}: {kind}{optional}" + (" = ..." if default else ""))
    if parts[-1] == "*":
        parts.pop()
    result = _named(op.outputs) if op.outputs else "Tensor"
    return f"def {name}({', '.join(parts)}) -> {result}: ..."


def _annotation(text: object) -> str:
    """A composite's annotation as a stub has it."""
    names = re.findall(r"[A-Za-z_.]+", text) if isinstance(text, str) else []
    if not names or not set(names) <= {*_ANNOTATIONS, "..."}:
        return "Any"
    return re.sub(r"[A-Za-z_]+", lambda match: _ANNOTATIONS[match[0]], str(text))


def _plain(function: Callable[..., Any], name: str, *, method: bool = False) -> str:
    """The stub of an ordinary function."""
    signature = inspect.signature(function)
    first = next(iter(signature.parameters), "")
    if forms := _FORMS.get((name, first)):
        lead = "self" if method else f"{first}: Tensor"
        return "\n".join(
            f"@overload\ndef {name}({', '.join(filter(None, (lead, params)))}) -> {result}: ..."
            for params, result in forms
        )
    fields = _FIELDS.get(name)
    result = _annotation(signature.return_annotation) if fields is None else _named(fields)
    out = {"Tensor": "Tensor | None"}.get(result, "Any") if fields is None else _tuple(fields)
    parts: list[str] = []
    for at, param in enumerate(signature.parameters.values()):
        if method and at == 0:
            parts.append("self")
            continue
        if name.endswith("_") and param.name == "out":
            continue
        if param.kind is param.KEYWORD_ONLY and not any(p.startswith("*") for p in parts):
            parts.append("*")
        star = {param.VAR_POSITIONAL: "*", param.VAR_KEYWORD: "**"}.get(param.kind, "")
        kind = out if param.name == "out" else _annotation(param.annotation)
        parts.append(f"{star}{param.name}: {kind}" + ("" if param.default is param.empty else " = ..."))
    if parts[-1:] == ["*"]:
        parts.pop()
    if result == "Any" and "return_indices" in signature.parameters:
        return _with_indices(name, parts)
    return f"def {name}({', '.join(parts)}) -> {result}: ..."


def _with_indices(name: str, parts: list[str]) -> str:
    """The forms of a pooling function, of which one returns indices too."""
    flag = next(at for at, part in enumerate(parts) if part.startswith("return_indices"))
    before, after = ", ".join(parts[:flag]), "".join(f", {part}" for part in parts[flag + 1 :])
    return (
        f"@overload\ndef {name}({before}, return_indices: Literal[False] = ...{after}) -> Tensor: ...\n"
        f"@overload\ndef {name}({before}, *, return_indices: Literal[True]{after}) -> tuple[Tensor, Tensor]: ...\n"
        f"@overload\ndef {name}({before}, return_indices: bool = ...{after}) -> Any: ..."
    )


_ROWS: dict[Any, OpDef] = {row.impl: row for row in TABLE.values()}
"""The rows by their bodies."""


def _row_of(function: Callable[..., Any]) -> OpDef | None:
    """The row whose function or in-place form this is; None if it has parameters that no row says, or is composed."""
    if "inplace" in inspect.signature(function).parameters:
        return None
    body: Any = function
    while body is not None and body not in _ROWS:
        body = getattr(body, "__wrapped__", None)
    return _ROWS.get(body)


def _source(function: Callable[..., Any]) -> str:
    """A comment that names the file, and the function in it, that one looks for; "" for what is generated wholly."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not code.co_filename.startswith(str(_ROOT)):
        return ""
    file = Path(code.co_filename).relative_to(_ROOT.parent).as_posix()
    return f"  # {file}: {code.co_qualname.partition('.<locals>')[0]}"


def _stub(name: str, function: Callable[..., Any], *, method: bool = False) -> str:
    row = _row_of(function)
    text = _plain(function, name, method=method) if row is None else _row(row, name, method=method)
    first, _, rest = text.partition(": ...")
    return f"{first}: ...{_source(function)}{rest}"


_HEAD = '''"""Generated by `make stubs` from the operator table; do not edit."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, overload

from weft._base.device import device as Device
from weft._base.dtype import DType
from weft._base.layout import layout as Layout
from weft._base.layout import memory_format as MemoryFormat
from weft._base.size import Size
from weft._tensor.generator import Generator
from weft._tensor.node import Node
from weft._tensor.storage import UntypedStorage
'''
_TENSOR = "from weft._tensor.tensor import Tensor\n"
_NUMBER = "\nNumber = int | float | bool | complex\n"


def _methods() -> Iterator[str]:
    for name, attribute in sorted(vars(Derived).items()):
        if isinstance(attribute, property):
            kind = "bool" if name.startswith("is_") else _PROPERTIES.get(name, "Tensor")
            yield f"@property\ndef {name}(self) -> {kind}: ..."
            if attribute.fset is not None:
                yield f"@{name}.setter\ndef {name}(self, value: Any) -> None: ..."
        elif inspect.isfunction(attribute):
            yield _special(name) if name.startswith("__") else _stub(name, attribute, method=True)


_SPECIAL = {
    "__eq__": "self, other: object) -> Tensor: ...  # type: ignore[override]",
    "__ne__": "self, other: object) -> Tensor: ...  # type: ignore[override]",
    "__iter__": "self) -> Iterator[Tensor]: ...",
    "__getitem__": "self, index: Any) -> Tensor: ...",
    "__setitem__": "self, index: Any, values: Any) -> None: ...",
    "__delitem__": "self, index: Any) -> None: ...",
    "__contains__": "self, element: Any) -> bool: ...",
    "__dlpack__": "self, **options: Any) -> Any: ...",
    "__dlpack_device__": "self) -> tuple[Any, int]: ...",
    "__repr__": "self) -> str: ...",
    "__format__": "self, spec: str) -> str: ...",
    "__deepcopy__": "self, memo: dict[int, Any]) -> Tensor: ...",
    "__reduce_ex__": "self, protocol: Any) -> Any: ...",
    "__array_wrap__": "self, array: Any, *args: Any) -> Tensor: ...",
    "__new__": "cls, *args: Any, **kwargs: Any) -> Tensor: ...",
}
_UNARY = {"__abs__", "__neg__", "__pos__", "__invert__", "__copy__"}


def _special(name: str) -> str:
    return f"def {name}(" + _SPECIAL.get(name, f"self{'' if name in _UNARY else ', other: Any'}) -> Tensor: ...")


_RESULTS = {
    _named(fields): fields
    for fields in sorted(
        {_VALUES, *_FIELDS.values(), *(row.outputs for row in TABLE.values() if row.public.function and row.outputs)}
    )
}
_IMPORTED = "".join(f"from weft._tensor.derived import {name}\n" for name in _RESULTS)


def _results() -> Iterator[str]:
    """The types of results with names."""
    for name, fields in _RESULTS.items():
        yield f"class {name}(NamedTuple):\n" + "".join(f"    {field}: Tensor\n" for field in fields)


def derived_stub() -> str:
    """`_tensor/derived.pyi`."""
    methods = "\n".join(f"    {text}".replace("\n", "\n    ") for text in _methods())
    results = "\n".join(_results())
    text = _builtin(f"class Derived:\n{methods}\n")
    return _needed(f"{_HEAD}{_TENSOR}import builtins\n{_NUMBER}\n{results}\n{text}")


def _functions(public: dict[str, Callable[..., Any]]) -> str:
    return "\n".join(_stub(name, function) for name, function in sorted(public.items()) if name.isidentifier())


def package_stub() -> str:
    """`__init__.pyi`."""
    modules = "\n".join(f"from weft import {name} as {name}" for name in sorted(MODULES))
    of_table = "\n".join(f"{name}: ModuleType" for name in children("weft"))  # their stubs are made with the wheel
    named = "\n".join(
        f"from {module} import {attribute} as {name}" for name, (module, attribute) in sorted(LOCATIONS.items())
    )
    functions = _functions({n: f for n, f in PUBLIC[""].items() if n not in LOCATIONS})
    text = _builtin(f"{_NUMBER}__version__: str\n\n{functions}\n")
    imports = f"{_IMPORTED}\nimport builtins\nfrom types import ModuleType\n{modules}\n{named}\n"
    return _needed(f"{_HEAD}{imports}{of_table}\n{text}")


def _needed(text: str) -> str:
    """A stub without the imports of names that do not come again."""

    def kept(line: re.Match[str]) -> str:
        names = [name for name in line[2].split(", ") if len(re.findall(rf"\b{name.split()[-1]}\b", text)) > 1]
        return f"{line[1]}{', '.join(names)}\n" if names else ""

    return re.sub(r"^(from \S+ import )(.*)\n", kept, text, flags=re.MULTILINE)


def _builtin(text: str) -> str:
    """With the names of Python's types spelled out: `weft.float` is a type of elements, and `Tensor.float` a method."""
    return re.sub(r"(?<![\w.])(bool|int|float|complex|str|tuple|type)(?![\w(]|: ignore)", r"builtins.\1", text)


def module_stub(module: str, imports: str = "") -> str:
    """The stub of a module that exports functions of the table alone, and what is imported in addition."""
    return _needed(f"{_HEAD}{_IMPORTED}{_TENSOR}{imports}{_NUMBER}\n{_functions(PUBLIC[module])}\n")


_ERROR = "from weft.errors import LinAlgError as LinAlgError\n"


def functional_stub() -> str:
    """`nn/functional.pyi`."""
    from weft.nn import functional

    public = {name: getattr(functional, name) for name in dir(functional)}
    return _needed(f"{_HEAD}{_IMPORTED}{_TENSOR}{_NUMBER}\n{_functions(public)}\n")


STUBS: dict[Path, Callable[[], str]] = {
    _ROOT / "_tensor" / "derived.pyi": derived_stub,
    _ROOT / "__init__.pyi": package_stub,
    _ROOT / "fft.pyi": partial(module_stub, "fft"),
    _ROOT / "masked" / "_functions.pyi": partial(module_stub, "masked"),
    _ROOT / "linalg.pyi": partial(module_stub, "linalg", _ERROR),
    _ROOT / "signal" / "windows.pyi": partial(module_stub, "signal.windows"),
    _ROOT / "special.pyi": partial(module_stub, "special"),
    _ROOT / "nn" / "functional.pyi": functional_stub,
}
"""The generated stubs, with the functions that make their texts."""


if __name__ == "__main__":
    for path, text in STUBS.items():
        path.write_text(text())
