"""Processes that run one function, each with its index. When one fails, all others are ended."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from time import monotonic, monotonic_ns
from typing import IO, Any, NoReturn

from weft._base.failing import follows_another, report_failures_by
from weft._base.signals import restore_defaults
from weft._base.types import Args
from weft.errors import ArgumentError, ProcessExitedException, ProcessRaisedException

_log = logging.getLogger(__name__)
_FOLLOWS = " follows"
_GRACE_SECONDS = 30.0  # between SIGTERM and SIGKILL


class _ErrorFile:
    """A file without a name, in which a process reports its exception to its parent."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, ...]:
        return _attached, (DupFd(self._file.fileno()),)

    def write(self, error: BaseException | None) -> None:
        """Report an error, or that there is none after all.

        It has the time of the first report, by a clock that is the same in all processes of a machine.
        """
        time = self.read()[0] or monotonic_ns()
        self._file.seek(0)
        self._file.truncate()
        if error is not None:
            text = "".join(traceback.format_exception(error))
            self._file.write(f"{time}{_FOLLOWS * follows_another(error)}\n{text}".encode(errors="backslashreplace"))
        self._file.flush()

    def read(self) -> tuple[int, str, bool]:
        """When the process has reported what; no time and no text if it has raised nothing.

        And whether the error tells that another process is missing.
        """
        number = self._file.fileno()
        content = os.pread(number, os.fstat(number).st_size, 0)  # the process may be writing: both have one position
        time, _, text = content.decode(errors="replace").partition("\n")
        return int(time.removesuffix(_FOLLOWS) or 0), text, time.endswith(_FOLLOWS)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _attached(file: Any) -> _ErrorFile:
    return _ErrorFile(os.fdopen(file.detach(), "w+b"))


def _run(fn: Callable[..., object], index: int, args: Args, error_file: _ErrorFile) -> None:
    """The main function of a process."""
    restore_defaults(signal.SIGINT)
    threading.Thread(target=_end_with_parent, name="end with the parent", daemon=True).start()
    report_failures_by(error_file.write)
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent was interrupted too, or is gone
    except Exception as error:
        error_file.write(error)
        sys.exit(1)
    error_file.write(None)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process was started by one"
    parent.join()
    os.kill(os.getpid(), signal.SIGINT)


class ProcessContext:
    """Processes that were started together. `join` waits for them."""

    def __init__(self, processes: Sequence[BaseProcess], error_files: Sequence[_ErrorFile]) -> None:
        self.processes = list(processes)
        self.error_files = list(error_files)
        self.sentinels = {process.sentinel: index for index, process in enumerate(self.processes)}

    def pids(self) -> list[int]:
        """The process ids."""
        return [process.pid for process in self.processes if process.pid is not None]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one of the processes ends; returns whether all have ended successfully.

        Returns False after `timeout` seconds. When a process has failed, the others have `grace_period` seconds (by
        default 0) to end by themselves; then they get SIGTERM, and after as many seconds (by default 30) SIGKILL.
        Raises `ProcessRaisedException`, with the traceback of the process that failed first, or
        `ProcessExitedException`, with its signal or exit code. Other processes that fail, for want of it, are not
        reported.
        """
        failed = []
        for sentinel in wait(list(self.sentinels), timeout) if self.sentinels else ():
            assert isinstance(sentinel, int), "sentinels of processes are descriptors"
            ended = self.sentinels.pop(sentinel)
            self.processes[ended].join()
            if self.processes[ended].exitcode:
                failed.append(ended)
        if failed:
            # Several may have ended by now; the one that failed first is the cause.
            first = self._first(failed)
            self._end_all(grace_period)
            self._raise(first)
        if not self.sentinels:
            self._close()
        return not self.sentinels

    def _first(self, failed: list[int]) -> int:
        """Which process has failed first: one that was killed, as it reports nothing, else by the reports.

        A process that has reported takes a while to end, in which others may fail for want of it, and end before it.
        An exit without a report may be the first failure, or follow another: it counts unless another error does not
        tell of a missing process.
        """

        reports = [file.read() for file in self.error_files]  # once: a process may withdraw its own meanwhile

        def order(index: int) -> tuple[int, int]:
            time, _, follows = reports[index]
            code = self.processes[index].exitcode or 0
            return (3 if follows else 1, time) if time else (0 if code < 0 else 2, failed.index(index))

        reported = [index for index, (time, _, _) in enumerate(reports) if time]
        return min({*failed, *reported}, key=order)

    def _end_all(self, grace_period: float | None) -> None:
        if grace_period is not None:
            self._join_all(grace_period)
        for process in self.processes:
            if process.is_alive():
                _log.warning("Terminating process %s via signal SIGTERM", process.pid)
                process.terminate()
        self._join_all(_GRACE_SECONDS if grace_period is None else grace_period)
        for process in self.processes:
            if process.is_alive():
                _log.warning("Unable to shutdown process %s via SIGTERM , forcefully exiting via SIGKILL", process.pid)
                process.kill()
            process.join()
        self.sentinels.clear()

    def _join_all(self, seconds: float) -> None:
        end = monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, end - monotonic()))

    def _raise(self, failed: int) -> NoReturn:
        process, (_, error, _) = self.processes[failed], self.error_files[failed].read()
        self._close()
        code, pid = process.exitcode, process.pid
        assert code is not None, "this process has ended"
        assert pid is not None, "this process was started"
        if error:
            text = f"\n\n-- Process {failed:d} terminated with the following error:\n{error}"
            raise ProcessRaisedException(text, failed, pid)
        if code > 0:
            text = f"process {failed:d} terminated with exit code {code:d}"
            raise ProcessExitedException(text, failed, pid, code)
        name = f"<Unknown signal {-code}>"
        with suppress(ValueError):
            name = signal.Signals(-code).name
        raise ProcessExitedException(f"process {failed:d} terminated with signal {name}", failed, pid, code, name)

    def _close(self) -> None:
        for error_file in self.error_files:
            error_file.close()


class SpawnContext(ProcessContext):
    """The former name of `ProcessContext`."""

    def __init__(self, processes: Sequence[BaseProcess], error_files: Sequence[_ErrorFile]) -> None:
        warnings.warn("SpawnContext is renamed to ProcessContext since 1.4 release.", stacklevel=2)
        super().__init__(processes, error_files)


def start_processes(
    fn: Callable[..., object],
    args: Args = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call `fn(index, *args)` in `nprocs` processes, with indices 0, 1, …; they end when this process ends.

    With `join` this waits for all of them, and raises as `ProcessContext.join` does; else it returns their context.
    `start_method` is `spawn`, `forkserver` or `fork`. A process that is forked from one in which XLA has started lacks
    XLA's threads: it has no other device than the CPU, and computes there with NumPy.
    """
    require_calls(args, nprocs)
    context: Any = multiprocessing.get_context(start_method)
    error_files, processes = [], []
    with ExitStack() as undo:
        for index in range(nprocs):
            # Without a name in the file system: a killed process leaves nothing behind.
            error_file = _ErrorFile(undo.enter_context(tempfile.TemporaryFile()))
            process = context.Process(target=_run, args=(fn, index, args, error_file), daemon=daemon)
            process.start()
            # If one cannot be started, those that have started are ended.
            undo.callback(process.join)
            undo.callback(process.kill)
            error_files.append(error_file)
            processes.append(process)
        undo.pop_all()
    started = ProcessContext(processes, error_files)
    if not join:
        return started
    while not started.join():
        pass
    return None


def require_calls(args: object, nprocs: object) -> None:
    """Raise `TypeError` unless `args` is an iterable of arguments and `nprocs` an int."""
    if not isinstance(args, Iterable):
        raise ArgumentError(
            f"args must be a tuple of the function's further arguments, but got {args!r}; write ({args!r},)"
        )
    if not isinstance(nprocs, int):
        raise ArgumentError(f"nprocs must be an integer, but got {nprocs!r}")


def spawn(
    fn: Callable[..., object],
    args: Args = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` with the start method `spawn`: each process imports the main program again."""
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\n"
            "To use a different start_method use:\n\t\t"
            " torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon)
