"""Pages of the API reference: what each public module exports, with signatures and docstrings.

Signatures and docstrings are read from the loaded package, since most functions are derived from the operator table and
stand in no source file. An object that several modules export is described where its path is shortest.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import weft
from weft._import_paths.table import TABLE

ROOT = Path(weft.__file__).parent
MEMBER = re.compile(r"<(\w+\.\w+): [^<>]*>")
"""An enumeration's member, as `repr` shows it."""
NO_USERS = {"weft.ops"}
"""Packages without an underscore that users do not import."""
COLUMNS = 100
ADDRESS = re.compile(r"<[^<>]*(?:<[^<>]*>)?[^<>]* at 0x[0-9a-f]+>")


def pages() -> dict[str, str]:
    """The text of each page by its module's name."""
    seen: set[int] = set()
    found: dict[str, str] = {}
    for name in sorted(public_modules(), key=lambda name: (name.count("."), name)):
        module = import_module(name)
        page = module_page(name, module, seen)
        if page:
            found[name] = page
        if name == "weft":
            found["weft.Tensor"] = tensor_page()
    return dict(sorted(found.items()))


def public_modules() -> Iterator[str]:
    """Modules without an underscore in their path: those with a file, and those of the table of import paths."""
    files = (path.relative_to(ROOT.parent).with_suffix("").parts for path in ROOT.rglob("*.py"))
    names = {".".join(part for part in parts if part != "__init__") for parts in files}
    for name in names | {f"weft.{path}" for path in TABLE}:
        hidden = any(part.startswith("_") for part in name.split("."))
        if not hidden and not any(name == other or name.startswith(f"{other}.") for other in NO_USERS):
            yield name


def module_page(name: str, module: ModuleType, seen: set[int]) -> str:
    """What a module exports and no module before it does; nothing when that is nothing."""
    functions, classes, others, also = [], [], [], []
    for export in exports(module):
        thing = getattr(module, export)
        if isinstance(thing, (ModuleType, TypeVar)):
            continue
        if id(thing) in seen:
            also.append(f"`{export}`")
            continue
        if inspect.isclass(thing):
            classes.append(class_entry(name, export, thing))
        elif callable(thing) and hasattr(thing, "__name__"):
            functions.append(function_entry(name, export, thing))
        else:
            others.append(f"| `{name}.{export}` | `{shown(thing)}` |")
            continue  # equal constants may be one object
        seen.add(id(thing))
    if not (functions or classes or others):
        return ""
    page = [f"# {name}", text_of(module)]
    if others:
        page.append("| constant | value |\n|---|---|\n" + "\n".join(others))
    page += classes + functions
    if also:
        page.append(f"## Further names\n\nDescribed under a shorter path: {', '.join(also)}.")
    return "\n\n".join(part for part in page if part) + "\n"


def exports(module: ModuleType) -> list[str]:
    """The public names that a module defines, exports by `import x as x`, or loads on first use."""
    names: set[str] = set()
    for node in body_of(module):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(entry.name for entry in node.names if entry.asname == entry.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    if "__getattr__" in vars(module):
        names.update(dir(module))
    return sorted(name for name in names if not name.startswith("_") and hasattr(module, name))


def body_of(module: ModuleType) -> list[ast.stmt]:
    """The statements of a module; none of one that only the table of import paths has."""
    file = getattr(module, "__file__", None)
    return ast.parse(Path(file).read_text(encoding="utf-8")).body if file else []


def tensor_page() -> str:
    """Every method and property of tensors."""
    entries = ["# weft.Tensor", text_of(weft.Tensor)]
    members = {name: value for owner in reversed(weft.Tensor.__mro__[:-1]) for name, value in vars(owner).items()}
    for name in sorted(name for name in members if not name.startswith("_")):
        entries.append(member_entry("weft.Tensor", name, members[name], "##"))
    return "\n\n".join(part for part in entries if part) + "\n"


def class_entry(module: str, name: str, kind: type) -> str:
    parts = [f"## {name}", fenced(f"class {module}.{name}", signature(kind)), text_of(kind)]
    if name != "Tensor":
        parts.append("\n".join(member_entry(name, member, value, "") for member, value in own_members(kind)))
    else:
        parts.append("Its methods have [a page of their own](weft.Tensor.md).")
    return "\n\n".join(part for part in parts if part)


def own_members(kind: type) -> Iterator[tuple[str, Any]]:
    """What a class has besides what its bases say; `forward` tells its inputs without a docstring, too."""
    for name, value in vars(kind).items():
        said = name == "forward" or text_of(getattr(value, "__func__", value))
        if said and not name.startswith("_") and is_described(value):
            yield name, value


def is_described(value: Any) -> bool:
    return isinstance(value, (property, staticmethod, classmethod)) or inspect.isfunction(value)


def member_entry(owner: str, name: str, value: Any, heading: str) -> str:
    """A method or a property; under a heading of its own or, in short, as an item."""
    function = getattr(value, "__func__", value)
    is_bound = not isinstance(value, staticmethod)
    arguments = signature(function, bound=is_bound) if inspect.isroutine(function) else ""
    text = text_of(function) if is_described(value) or inspect.isroutine(value) else ""
    if heading:
        return "\n\n".join(part for part in (f"{heading} {name}", fenced(f"{owner}.{name}", arguments), text) if part)
    first = text.partition("\n\n")[0].replace("\n", " ")
    return f"- `.{name}{arguments}`{': ' + first if first else ''}"


def function_entry(module: str, name: str, function: Any) -> str:
    parts = (f"## {name}", fenced(f"{module}.{name}", signature(function)), text_of(function))
    return "\n\n".join(part for part in parts if part)


class Plain:
    """An annotation that is written as it stands in the source, without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def signature(thing: Any, *, bound: bool = False) -> str:
    """The parameters, less the first of a method, or nothing where Python does not know them."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = [p.replace(annotation=plain(p.annotation)) for p in found.parameters.values()]
    if bound and parameters and parameters[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        del parameters[0]
    result = inspect.Signature.empty if inspect.isclass(thing) else plain(found.return_annotation)
    text = str(found.replace(parameters=parameters, return_annotation=result))
    return ADDRESS.sub("…", MEMBER.sub(r"\1", text))


def plain(annotation: Any) -> Any:
    return Plain(annotation) if isinstance(annotation, str) else annotation


def shown(thing: Any) -> str:
    text = ADDRESS.sub("…", repr(thing)).replace("|", "\\|").replace("\n", " ")
    return text if len(text) <= 80 else f"{text[:79]}…"


def fenced(name: str, arguments: str) -> str:
    """A call as a block of code; a long one has a line for each argument."""
    text = name + arguments
    if len(text) > COLUMNS:
        text = text.replace("(", "(\n    ", 1)
        text = re.sub(r", (?=\*{0,2}\w+(?::|=|,|\)| =)|[*/], )", ",\n    ", text)
    return f"```python\n{text}\n```"


def text_of(thing: Any) -> str:
    """The docstring; one that a class has from its base says nothing of it."""
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", None)
    text = inspect.cleandoc(text) if isinstance(text, str) else ""
    text = re.sub(r"(?m)^(?!- )(\S.*)\n(?=- )", r"\1\n\n", text)  # a list needs an empty line before it
    return re.sub(r"(?m)^#", r"\\#", text)
