"""The command `weft top`."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from importlib import import_module
from typing import NoReturn

from rich.console import Console
from rich.live import Live

from weft._tools.tables import interval_seconds, text
from weft._tools.top.client import Endpoint, EndWatch, ask, endpoints_of
from weft._tools.top.ranks import Window
from weft._tools.top.view import render
from weft.errors import DistNetworkError, WeftError

_STORES = ("tcp://", "file://", "env://")
_PARTING = 2.0  # seconds for which a launcher that does not answer any more may still tell how its job has ended
_ENDED = {"SUCCEEDED": "has succeeded", "FAILED": "has failed; the output of its launcher says why"}

_EPILOG = """\
TARGET is the id or the program of a job of this machine (it may be left out if there is one job), or HOST:PORT of a
launcher that was started with TORCHELASTIC_HEALTH_CHECK_PORT=PORT; several, separated by commas, are shown together.
With tcp://HOST:PORT, file:///PATH or env:// it is the store by which workers of remote calls meet: the view is then
that of `weft rpc top`, whose flags follow."""


class _Watched:
    """A job that is looked at."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self.window = Window()
        self.window.add(ask(endpoints))
        self.end = EndWatch(endpoints[0])

    def update(self, seconds: float) -> bool:
        """Wait for so long, and ask again; False if the job has ended."""
        if self.end.wait(seconds) is not None:
            return False
        try:
            self.window.add(ask(self._endpoints))
        except DistNetworkError:
            if self.end.wait(_PARTING) is not None:
                return False
            raise
        return True

    def close(self) -> None:
        """Look no more."""
        self.end.close()


def _observe(options: Namespace) -> int:
    with closing(_Watched(endpoints_of(options.target))) as watched:
        return _show(watched, options)


def _show(watched: _Watched, options: Namespace) -> int:
    """Show the job until it ends, or once; returns the exit code."""
    alive = watched.update(options.interval)  # for rates
    if options.once or not sys.stdout.isatty() or options.json:
        end = "" if options.once and not options.json else "\n"
        while alive:
            print(_as_json(watched.window) if options.json else text(render(watched.window)), end=end, flush=True)
            if options.once:
                return 0
            alive = watched.update(options.interval)
    else:
        console = Console(markup=False, emoji=False, highlight=False)
        with Live(render(watched.window), console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while alive := watched.update(options.interval):
                live.update(render(watched.window), refresh=True)
    return _tell_end(watched)


def _tell_end(watched: _Watched) -> int:
    """Say how a job has ended; returns the exit code."""
    state, job = watched.end.wait(0) or "", watched.window.last
    how = _ENDED.get(state, "was stopped" if state else "has lost its launcher")
    print(f"weft top: {job.program}, job {job.job}, {how}", file=sys.stderr, flush=True)
    return 0 if state == "SUCCEEDED" else 1


def _as_json(window: Window) -> str:
    """The view as text of one line, for programs."""
    job = asdict(window.last)
    job["nodes"] = [{name: node[name] for name in ("node", "host", "agent", "answers")} for node in job["nodes"]]
    return json.dumps(job | {"time": time.time(), "ranks": [asdict(rank) for rank in window.ranks()]})


def _parser() -> ArgumentParser:
    parser = ArgumentParser("weft top", description="Show what the ranks of a running job do.", epilog=_EPILOG)
    parser.add_argument("target", nargs="?", metavar="TARGET", help="which job; by default the one of this machine")
    parser.add_argument("--once", action="store_true", help="print one view, and end")
    parser.add_argument("--json", action="store_true", help="print each view as JSON, on one line")
    parser.add_argument(
        "--interval", type=interval_seconds, default=1.0, metavar="SECONDS", help="between looks (default 1)"
    )
    return parser


def main(args: Sequence[str] | None = None) -> None:
    """The command. Exits with code 0 if the job succeeds, 1 if it fails or is not there, 2 for wrong arguments."""
    arguments = sys.argv[1:] if args is None else list(args)
    if any(argument.startswith(_STORES) for argument in arguments):
        import_module("weft._tools.rpc_top.top").main(arguments)
        return
    options = _parser().parse_args(arguments)
    try:
        code = _observe(options)
    except (KeyboardInterrupt, BrokenPipeError):  # the usual ways to end it
        sys.exit(0)
    except (WeftError, OSError, ValueError) as error:
        _fail(error)
    if code:
        sys.exit(code)


def _fail(error: Exception) -> NoReturn:
    print(f"weft top: error: {error}", file=sys.stderr, flush=True)
    sys.exit(1)
