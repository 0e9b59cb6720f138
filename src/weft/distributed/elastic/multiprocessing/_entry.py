"""Runs a script or a module as `python` does, and writes an error file if it ends with an exception.

`python -m weft.distributed.elastic.multiprocessing._entry SCRIPT ARGS…` or `… -m MODULE ARGS…`. `sys.argv`,
`sys.path[0]` and `__main__` are as in plain Python, and tracebacks begin in the program itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from weft._base.flight import start_from_environment
from weft._base.program import end, run_module, run_script, shortened
from weft._base.types import AnyCallable, Arg
from weft.distributed.elastic.multiprocessing._activity import attach
from weft.distributed.elastic.multiprocessing._lossy import survive_full_disks
from weft.distributed.elastic.multiprocessing.errors import get_error_handler
from weft.distributed.elastic.multiprocessing.errors._record import record_once, reported_by

RUNNER = ("-u", "-m", "weft.distributed.elastic.multiprocessing._entry")
"""The arguments between the interpreter and the program in a worker's command."""


def is_run_here(entrypoint: AnyCallable | str, args: Sequence[Arg]) -> bool:
    """Whether this interpreter runs a script or a module through our runner."""
    return entrypoint == sys.executable and tuple(args[: len(RUNNER)]) == RUNNER


def program_name(entrypoint: AnyCallable | str, args: Sequence[Arg]) -> str:
    """The user's name for the program: without the interpreter and its options."""
    if not isinstance(entrypoint, str):
        return getattr(entrypoint, "__name__", repr(entrypoint))
    if entrypoint != sys.executable:
        return entrypoint
    words = [str(arg) for arg in args]
    if is_run_here(entrypoint, args):
        words = words[len(RUNNER) :]
    return next((word for word in words if not word.startswith("-")), entrypoint)


def main(argv: list[str]) -> None:
    """Run the program that the arguments name. An exception, or an exit with an error code, is recorded."""
    as_module = argv[:1] == ["-m"]
    name, *args = argv[as_module:] or [""]
    if not name:
        sys.exit("usage: python -m weft.distributed.elastic.multiprocessing._entry [-m] PROGRAM [ARGS …]")
    # A full disk costs output only, and no training.
    survive_full_disks()
    start_from_environment()
    handler = get_error_handler()
    handler.initialize()
    attach()
    try:
        with reported_by(handler):
            (run_module if as_module else run_script)(name, args)
    except SystemExit as stop:
        if stop.code not in (None, 0):
            record_once(shortened(stop, __file__), handler)
        raise
    except KeyboardInterrupt as error:
        shortened(error, __file__)
        raise
    except BaseException as error:
        record_once(shortened(error, __file__), handler)
        end(error)


if __name__ == "__main__":
    main(sys.argv[1:])
