"""Running a script or a module as `python` does: `sys.argv`, `sys.path[0]` and `__main__` are as in plain Python."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import runpy
import sys
import traceback
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn


def run_script(path: str, args: list[str]) -> None:
    """Run a script, or a folder or archive with a `__main__.py`, as `python PATH ARGS` does."""
    sys.argv[:] = [path, *args]
    if not os.path.exists(path):
        print(f"{sys.executable}: can't open file {os.path.abspath(path)!r}: no such file", file=sys.stderr)
        sys.exit(2)
    if not is_source(path):
        runpy.run_path(path, run_name="__main__")
        return
    add_script_folder(path)
    path = os.path.abspath(path)
    run_code(_code_of(path), path, None, None, SourceFileLoader("__main__", path))


def run_module(name: str, args: list[str]) -> None:
    """Run a module, or a package's `__main__`, as `python -m NAME ARGS` does."""
    sys.argv[:] = ["-m", *args]
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    spec, code = _find_code(name)
    sys.argv[0] = spec.origin or name
    run_code(code, spec.origin, spec, spec.parent, spec.loader)


def run_text(text: str, args: list[str], how: str = "-c") -> None:
    """Run code as `python -c TEXT ARGS` does; `how` is "-" for what the standard input says."""
    sys.argv[:] = [how, *args]
    if not sys.flags.safe_path:
        sys.path[0] = ""
    run_code(compile(text, "<string>" if how == "-c" else "<stdin>", "exec", dont_inherit=True), None, None, None, None)


def add_script_folder(path: str) -> None:
    """Put the folder of a script first in `sys.path`, as Python does when it runs a script."""
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))


def is_source(path: str) -> bool:
    """Whether a script is Python source, and not a folder, an archive or a compiled file."""
    if os.path.isdir(path) or path.endswith(".pyc"):
        return False
    with open(path, "rb") as file:
        return file.read(2) != b"PK"  # the start of an archive


def _code_of(path: str) -> CodeType:
    """The code of a script."""
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def run_code(code: CodeType, path: str | None, spec: ModuleSpec | None, package: str | None, loader: Any) -> None:
    """Run code as `__main__` of this process. It stays `__main__`, since threads and exit handlers may use it later."""
    module = ModuleType("__main__")
    module.__spec__, module.__package__, module.__loader__ = spec, package, loader
    vars(module).update(__cached__=spec and spec.cached, __builtins__=builtins, __annotations__={})
    if path is not None:
        vars(module)["__file__"] = path
    sys.modules["__main__"] = module
    exec(code, vars(module))


def _find_code(name: str) -> tuple[ModuleSpec, CodeType]:
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:  # for a parent package, or for a module that it imports
        sys.exit(f"{sys.executable}: Error while finding module specification for {name!r} ({error})")
    loader: Any = spec.loader if spec is not None else None
    code = loader.get_code(spec.name) if spec is not None and hasattr(loader, "get_code") else None
    if spec is None or code is None:
        sys.exit(f"{sys.executable}: No module named {name}")
    return spec, code


def shortened(error: BaseException, *files: str) -> BaseException:
    """The exception without the frames of this module, and of these files, that have led to the program."""
    ours = {__file__, runpy.run_path.__code__.co_filename, importlib.util.__file__, *files}
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in ours:
        trace = trace.tb_next
    return error.with_traceback(trace)


def end(error: BaseException) -> NoReturn:
    """Print the exception and exit, as the interpreter does, but at once: other ranks may print theirs."""
    if sys.excepthook is sys.__excepthook__:
        print("".join(traceback.format_exception(error)), end="", file=sys.stderr, flush=True)
    else:
        sys.excepthook(type(error), error, error.__traceback__)
    sys.exit(1)
