"""Runs a script or a module as `python` does, and writes an error file if it ends with an exception.

`python -m weft.distributed.elastic.multiprocessing._entry SCRIPT ARGS…` or `… -m MODULE ARGS…`. `sys.argv`,
`sys.path[0]` and `__main__` are as in plain Python, and tracebacks begin in the program itself.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import runpy
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

from weft.distributed.elastic.multiprocessing._lossy import survive_full_disks
from weft.distributed.elastic.multiprocessing.errors import get_error_handler
from weft.distributed.elastic.multiprocessing.errors._record import record_once

RUNNER = ("-u", "-m", "weft.distributed.elastic.multiprocessing._entry")
"""The arguments between the interpreter and the program in a worker's command."""


def main(argv: list[str]) -> None:
    """Run the program that the arguments name. An exception, or an exit with an error code, is recorded."""
    as_module = argv[:1] == ["-m"]
    name, *args = argv[as_module:] or [""]
    if not name:
        sys.exit("usage: python -m weft.distributed.elastic.multiprocessing._entry [-m] PROGRAM [ARGS …]")
    survive_full_disks()
    handler = get_error_handler()
    handler.initialize()
    try:
        (run_module if as_module else run_script)(name, args)
    except SystemExit as stop:
        if stop.code not in (None, 0):
            record_once(_shortened(stop), handler)
        raise
    except KeyboardInterrupt as error:
        _shortened(error)
        raise
    except BaseException as error:
        record_once(_shortened(error), handler)
        _end(error)


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
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    _run(code, path, None, None, SourceFileLoader("__main__", path))


def add_script_folder(path: str) -> None:
    """Put the folder of a script first in `sys.path`, as Python does when it runs a script."""
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(path))


def run_module(name: str, args: list[str]) -> None:
    """Run a module, or a package's `__main__`, as `python -m NAME ARGS` does."""
    sys.argv[:] = ["-m", *args]
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    spec, code = _find_code(name)
    sys.argv[0] = spec.origin or name
    _run(code, spec.origin, spec, spec.parent, spec.loader)


def is_source(path: str) -> bool:
    """Whether a script is Python source, and not a folder, an archive or a compiled file."""
    if os.path.isdir(path) or path.endswith(".pyc"):
        return False
    with open(path, "rb") as file:
        return file.read(2) != b"PK"  # the start of an archive


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


def _run(code: CodeType, path: str | None, spec: ModuleSpec | None, package: str | None, loader: Any) -> None:
    """Run code as `__main__` of this process. It stays `__main__`, since threads and exit handlers may use it later."""
    module = ModuleType("__main__")
    module.__spec__, module.__package__, module.__loader__ = spec, package, loader
    vars(module).update(__file__=path, __cached__=spec and spec.cached, __builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = module
    exec(code, vars(module))


def _shortened(error: BaseException) -> BaseException:
    """The exception without the frames of this runner."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _OURS:
        trace = trace.tb_next
    return error.with_traceback(trace)


def _end(error: BaseException) -> NoReturn:
    """Print the exception and exit, as the interpreter does."""
    sys.excepthook(type(error), error, error.__traceback__)
    sys.exit(1)


_OURS = {__file__, runpy.run_path.__code__.co_filename, importlib.util.__file__}

if __name__ == "__main__":
    main(sys.argv[1:])
