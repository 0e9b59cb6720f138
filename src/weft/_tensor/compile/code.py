"""The names in functions' code (globals and attributes), and whether code belongs to a library or to the user."""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from weft._base.own_names import is_own_module
from weft._base.types import Arg

_OWN = __name__.partition(".")[0]
_OWN_FOLDER = str(Path(__file__).resolve().parents[2]) + "/"
_PATHS = sysconfig.get_paths()
_LIBRARIES = tuple({_PATHS[name].rstrip("/") + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_BY_NAME = frozenset({"getattr", "setattr", "delattr", "vars", "__dict__"})
_OF_THE_MODULE = {f"{verb}_{space}" for verb in ("LOAD", "STORE", "DELETE") for space in ("GLOBAL", "NAME")}


class Names(NamedTuple):
    """The names in a piece of code, including functions defined in it.

    globals      names of the module that it reads or writes
    attributes   names after a dot, and strings that are identifiers (for `getattr(x, "name")`)
    inner        the code of functions defined in it
    any          whether it accesses attributes by computed names
    """

    globals: frozenset[str]
    attributes: frozenset[str]
    inner: frozenset[CodeType]
    any: bool


@lru_cache(maxsize=4096)  # key: the code
def names_in(code: CodeType) -> Names:
    """The names in a piece of code."""
    in_module: set[str] = set()
    attributes: set[str] = set()
    inner: set[CodeType] = set()
    for instruction in dis.get_instructions(code):
        if instruction.opcode in dis.hasname and isinstance(instruction.argval, str):
            (in_module if instruction.opname in _OF_THE_MODULE else attributes).add(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, str) and constant.isidentifier():
            attributes.add(constant)
        elif isinstance(constant, CodeType):
            below = names_in(constant)
            in_module |= below.globals
            attributes |= below.attributes
            inner |= {constant, *below.inner}
    computed = bool(_BY_NAME & (in_module | attributes))
    return Names(frozenset(in_module), frozenset(attributes), frozenset(inner), computed)


def is_own(filename: str) -> bool:
    """Whether a source file belongs to this package, or to jax, which this package runs."""
    return filename.startswith((_OWN_FOLDER, "<weft")) or "/jax/" in filename


def is_library(filename: str) -> bool:
    """Whether a source file belongs to the standard library, to this package or to another installed one."""
    return is_own(filename) or filename.startswith(("<frozen", *_LIBRARIES))


def runs_own(frame: FrameType) -> bool:
    """Whether a frame runs code of this package or of jax, including generated code."""
    package = str(frame.f_globals.get("__name__")).partition(".")[0]
    return package in (_OWN, "jax", "jaxlib") or is_own_module(package) or is_own(frame.f_code.co_filename)


def runs_library(frame: FrameType) -> bool:
    """Whether a frame runs a library's code, including code generated outside of all modules."""
    return is_library(frame.f_code.co_filename) or is_library_module(frame.f_globals.get("__name__", "builtins"))


@lru_cache(maxsize=4096)  # key: the module's name
def is_library_module(name: str) -> bool:
    """Whether a module belongs to a library. A module without a file does, unless it is the user's main program."""
    if name == "__main__" or name not in sys.modules:
        return False
    filename = getattr(sys.modules[name], "__file__", None)
    return filename is None or is_library(filename)


def is_own_class(kind: type) -> bool:
    """Whether a class belongs to this package."""
    return is_own_module(kind.__module__)


def is_users_class(kind: type) -> bool:
    """Whether a class belongs to the user."""
    return not is_library_module(kind.__module__)


def stores(codes: Iterator[CodeType], name: str) -> str:
    """`file:line` of the first assignment to a name, or ""."""
    for code in codes:
        line: Arg = None
        for instruction in dis.get_instructions(code):
            line = instruction.starts_line or line if sys.version_info < (3, 13) else instruction.line_number
            if instruction.opname.startswith(("STORE_", "DELETE_")) and instruction.argval == name:
                return f"{code.co_filename}:{line}"
    return ""
