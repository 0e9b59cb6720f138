"""The command `weft`, which is `python -m weft` too: runs PyTorch's programs, launches jobs, and shows what they do."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

from weft._base.program import end, run_module, run_script, run_text, shortened
from weft._base.torch_alias import as_torch, own_name, rename_missing

_USAGE = """\
usage: weft SCRIPT [ARGS …]       run a script in which `torch` is Weft
       weft -m MODULE [ARGS …]    run a module so
       weft -c CODE [ARGS …]      run this code so
       weft - [ARGS …]            run what the standard input says so
       weft run [FLAGS] PROGRAM   launch a job; weft run --help lists the flags
       weft top [TARGET]          show what the ranks of a running job do; weft top --help lists the flags
       weft rpc top INIT_METHOD   show the remote calls of a job; weft rpc top --help lists the flags"""


def command() -> None:
    """Run what the command line says."""
    match sys.argv[1:]:
        case ["run", *rest]:
            import_module("weft._tools.jobs.run").command(rest)
        case ["top", *rest]:
            import_module("weft._tools.top.top").main(rest)
        case ["rpc", "top", *rest]:
            import_module("weft._tools.rpc_top.top").main(rest)
        case ["-h" | "--help"]:
            print(_USAGE)
        case ["-m" | "-c" as how, text, *rest]:
            _run(how, text, rest)
        case ["-", *rest]:
            _run("-", sys.stdin.read(), rest)
        case [script, *rest] if not script.startswith("-"):
            _run("", script, rest)
        case _:
            sys.exit(_USAGE)


def _run(how: str, text: str, args: list[str]) -> None:
    """Run a program in which `torch` is this package. An exception ends it as it ends `python`."""
    as_torch()
    try:
        if how == "-m":
            run_module(own_name(text), args)
        elif how:
            run_text(text, args, how)
        else:
            run_script(text, args)
    except (SystemExit, KeyboardInterrupt) as stop:
        shortened(stop, __file__)
        raise
    except BaseException as error:
        _end(shortened(error, __file__))


def _end(error: BaseException) -> NoReturn:
    rename_missing(error)
    end(error)


if __name__ == "__main__":
    command()
