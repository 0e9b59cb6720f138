"""A group of processes that run, fail and end as a unit."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait as wait_for_any
from pathlib import Path
from typing import TextIO

from weft._base.flight import has_recorded_end, remove_recording
from weft._base.types import AnyCallable, Args, Json, Result
from weft.distributed.elastic.multiprocessing._guardian import Guardian
from weft.distributed.elastic.multiprocessing._logs import LogsDest, LogsSpecs
from weft.distributed.elastic.multiprocessing._numa import refuse_numa
from weft.distributed.elastic.multiprocessing._signals import (
    Handler,
    SignalException,
    raise_on_signals,
    restore_handlers,
    signals_held,
)
from weft.distributed.elastic.multiprocessing._std import require_all_ranks
from weft.distributed.elastic.multiprocessing.errors import ProcessFailure
from weft.distributed.elastic.multiprocessing.errors._failure import NOT_AVAILABLE, last_traceback
from weft.distributed.elastic.multiprocessing.tail_log import TailLog
from weft.errors import DistError

_LONGEST_PAUSE = 0.05  # seconds between checks of processes that cannot be waited for
_ENDING_SECONDS = 5.0  # in which a process should end after its program has ended, or has written its error file
_log = logging.getLogger(__name__)


@dataclass
class RunProcsResult:
    """The result of a run, by local rank: return values of functions (None for programs), failures, and log files.

    The path of a stream that was not redirected is empty.
    """

    return_values: dict[int, Result] = field(default_factory=dict[int, Result])
    failures: dict[int, ProcessFailure] = field(default_factory=dict[int, ProcessFailure])
    stdouts: dict[int, str] = field(default_factory=dict[int, str])
    stderrs: dict[int, str] = field(default_factory=dict[int, str])

    def is_failed(self) -> bool:
        """Whether any process failed."""
        return bool(self.failures)


class PContext(ABC):
    """The processes of one call of `start_processes`, one for each local rank.

    Every process leads its own process group. A group is killed when its leader ends, so that nothing that a worker has
    started outlives it; all groups are killed when this process dies. `wait` closes the context when all processes have
    succeeded or one has failed; `close` ends it earlier, and notes the time, the local ranks that were
    stopped then, and the exit codes of those that had ended.
    """

    def __init__(
        self,
        name: str,
        entrypoint: AnyCallable | str,
        args: Mapping[int, Args],
        envs: dict[int, dict[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: Mapping[int, str] | None = None,
        numa_options: None = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
    ) -> None:
        refuse_numa(numa_options)
        self.name = name
        self.entrypoint = entrypoint
        self.args = args
        self.envs = envs
        self.nprocs = len(args)
        require_all_ranks(args, self.nprocs, "args")
        require_all_ranks(envs, self.nprocs, "envs")
        dest = logs_specs.reify(envs)
        require_all_ranks(dest.stdouts, self.nprocs, "stdouts")
        require_all_ranks(dest.stderrs, self.nprocs, "stderrs")
        self.stdouts, self.stderrs, self.error_files = dest.stdouts, dest.stderrs, dest.error_files
        self._dest = dest
        self._prefixes = log_line_prefixes
        self._filters = (duplicate_stdout_filters, duplicate_stderr_filters)
        self._pids: dict[int, int] = {}
        self._exits: dict[int, int] = {}
        self._ends: dict[int, float] = {}  # the times at which they were noticed
        self._watches: dict[int, int] = {}  # a descriptor for each running process, readable when it has ended
        self._tails: list[TailLog] = []
        self._copies: list[TextIO] = []
        self._handlers: dict[int, Handler] = {}
        self._guardian: Guardian | None = None
        self._closed = False
        self.stopped: set[int] = set()
        self.ended: dict[int, int] = {}
        self.closed_at = 0.0
        self._owner = os.getpid()

    # --- methods of each kind of process ---

    @abstractmethod
    def _launch(self, local_rank: int) -> int:
        """Start one process; returns its process id."""

    @abstractmethod
    def _exit_code(self, local_rank: int) -> int | None:
        """The exit code, negative for a signal, or None while the process runs. Never blocks."""

    def _watched(self, pid: int) -> int:
        """A new descriptor that is readable when the process has ended."""
        return os.pidfd_open(pid)

    def _collect(self) -> None:  # noqa: B027  programs send nothing
        """Read what the processes have sent so far. Never blocks."""

    def _return_values(self) -> dict[int, Result]:
        return dict.fromkeys(range(self.nprocs))

    def _readers(self) -> list[int]:
        """Descriptors that become readable when a process has sent something."""
        return []

    def _unexplained(self, failure: ProcessFailure) -> str | dict[str, Json]:
        """The message of a failure of which only the exit code is known."""
        return failure.message

    def _release(self) -> None:  # noqa: B027  programs leave nothing
        """Release the resources of processes that have ended."""

    # --- running ---

    def start(self) -> None:
        """Start all processes. In the main thread, also let signals such as SIGTERM raise `SignalException`.

        If one cannot be started, or a signal arrives, those that have started are ended.
        """
        if self._guardian or self._closed:
            raise DistError(f"{self.name}: the processes have been started already; make a new context")
        self._handlers = raise_on_signals()
        atexit.register(self._close_at_exit)
        # A killed parent runs no code: only another process can end the workers then.
        self._guardian = Guardian(self._dest.temporary)
        try:
            for rank in range(self.nprocs):
                with signals_held():  # a process that has started is known, and so it is ended
                    pid = self._pids[rank] = self._launch(rank)
                    self._guardian.watch(pid)
                with suppress(OSError, AttributeError):  # not supported by every kernel and system
                    self._watches[rank] = self._watched(pid)
        except BaseException as error:
            self.close(error.sigval if isinstance(error, SignalException) else None)
            raise
        self._tails = [tail.start() for tail in self._tail_logs(self._dest)]

    def wait(self, timeout: float = -1, period: float = 1) -> RunProcsResult | None:
        """The result, or None after `timeout` seconds.

        A negative timeout waits for ever; 0 does not wait. The end of a process is noticed at once if the system
        supports it, else within `period` seconds. Raises `SignalException` if this process is asked to end.
        """
        deadline = time.monotonic() + timeout
        while True:
            if result := self._poll():
                return result
            left = deadline - time.monotonic() if timeout >= 0 else period
            if left <= 0:
                return None
            self._pause(min(period, left))

    def pids(self) -> dict[int, int]:
        """Process ids by local rank."""
        return dict(self._pids)

    @property
    def folder(self) -> str:
        """The folder with a folder for each process, or an empty text."""
        path = self.error_files.get(0, "")
        return os.path.dirname(os.path.dirname(path)) if path and path != os.devnull else ""

    @property
    def is_temporary(self) -> bool:
        """Whether that folder is removed when this process ends."""
        return bool(self._dest.temporary)

    def close(self, death_sig: signal.Signals | None = None, timeout: float = 30) -> None:
        """End the processes and everything that they have started, and show the rest of their output.

        They get `death_sig` (by default SIGTERM), and SIGKILL after `timeout` seconds. Stopped processes are continued,
        so that they can react to the first. Further calls do nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._look()
        self.ended = self._exits.copy()
        # Noted before anything is signalled, as SIGCONT below continues what was stopped: the crash report names these
        # ranks.
        self.stopped = {rank for rank in self._running() if _is_stopped(self._pids[rank])}
        self.closed_at = time.time()
        try:
            self._signal(death_sig or signal.SIGTERM, signal.SIGCONT)
            self._await_exits(timeout)
        finally:  # a second signal may arrive while this waits
            self._kill(timeout)
            self._clean_up()

    def _close_at_exit(self) -> None:
        """Close at exit, since the interpreter would otherwise wait for processes that run functions."""
        if os.getpid() == self._owner:
            self.close()

    def _poll(self) -> RunProcsResult | None:
        self._look()
        self._collect()
        # The first failure is often not the first end: a rank that misses another one may end sooner than the one that
        # failed.
        if any(self._exits.values()):
            self._await_ending()
        failures = {rank: self._failure(rank) for rank, code in self._exits.items() if code}
        if not failures and len(self._exits) < self.nprocs:
            return None
        self.close()
        if not failures:  # nobody will ask what the processes have done
            for path in self.error_files.values():
                if path:
                    remove_recording(os.path.dirname(path))
        values = {} if failures else self._return_values()
        return RunProcsResult(values, failures, self.stdouts, self.stderrs)

    def _await_ending(self) -> None:
        """Wait for processes that are about to end: one may have failed first, and exit codes tell who has left."""
        deadline = time.monotonic() + _ENDING_SECONDS
        while any(map(self._is_ending, self._running())):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._pause(left)
            self._look()
            self._collect()

    def _is_ending(self, rank: int) -> bool:
        path = self.error_files[rank]
        return os.path.exists(path) or has_recorded_end(os.path.dirname(path))

    def _failure(self, rank: int) -> ProcessFailure:
        temporary = bool(self._dest.temporary)
        failure = ProcessFailure(
            rank,
            self._pids[rank],
            self._exits[rank],
            self.error_files[rank],
            temporary=temporary,
            ended=self._ends[rank],
        )
        if failure.error_file == NOT_AVAILABLE and failure.exitcode > 0:
            failure.message = last_traceback(self.stderrs[rank]) or self._unexplained(failure)
            # On a full disk the error file is missing or cut off, and the exit code alone says nothing of the cause.
            if _is_full(folder := os.path.dirname(self.error_files[rank])):
                failure.message = f"exit code {failure.exitcode}; the disk that holds the logs in {folder} is full"
        _log.error(
            "failed (exitcode: %s) local_rank: %s (pid: %s) of %s", failure.exitcode, rank, failure.pid, self.name
        )
        return failure

    # --- the processes ---

    def _running(self) -> list[int]:
        return [rank for rank in self._pids if rank not in self._exits]

    def _look(self) -> None:
        """Record which processes have ended, and kill the rest of their groups."""
        for rank in self._running():
            code = self._exit_code(rank)
            if code is None:
                continue
            self._exits[rank], self._ends[rank] = code, time.time()
            # What a worker has started would otherwise go on, holding ports and files that the next start needs.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pids[rank], signal.SIGKILL)
            if self._guardian:
                self._guardian.forget(self._pids[rank])
            if (watch := self._watches.pop(rank, None)) is not None:
                os.close(watch)

    def _pause(self, seconds: float) -> None:
        """Wait until a process ends or sends something, or for this time."""
        # Without a descriptor (an old kernel, or no Linux) an end is only noticed by looking.
        if len(self._watches) < len(self._running()):
            seconds = min(seconds, _LONGEST_PAUSE)
        wait_for_any([*self._watches.values(), *self._readers()], seconds)

    def _signal(self, *signals: signal.Signals) -> None:
        """Send signals to the groups of all running processes."""
        self._look()
        for rank in self._running():
            for number in signals:
                try:
                    os.killpg(self._pids[rank], number)
                except (ProcessLookupError, PermissionError):  # the group does not exist yet, or has just ended
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(self._pids[rank], number)

    def _await_exits(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while self._look() or self._running():
            self._collect()  # a process cannot end before the value that it sends is read
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._pause(left)

    def _kill(self, timeout: float) -> None:
        if self._running():
            _log.warning("%s: local ranks %s ignore the signal and are killed", self.name, self._running())
        self._signal(signal.SIGKILL)
        self._await_exits(timeout)
        if left := self._running():  # for instance a process that sleeps in a driver
            _log.error("%s: local ranks %s survive SIGKILL and are left behind", self.name, left)

    def _clean_up(self) -> None:
        for tail in self._tails:
            tail.stop()
        for file in self._copies:
            file.close()
        for watch in self._watches.values():
            os.close(watch)
        self._watches.clear()
        self._release()
        if self._guardian:
            self._guardian.dismiss()
        restore_handlers(self._handlers)
        atexit.unregister(self._close_at_exit)

    def _tail_logs(self, dest: LogsDest) -> list[TailLog]:
        """The log files to show, and the files for filtered lines."""
        tails = [
            TailLog(self.name, dest.tee_stdouts, sys.stdout, self._prefixes),
            TailLog(self.name, dest.tee_stderrs, sys.stderr, self._prefixes),
        ]
        tee_logs = (dest.tee_stdouts, dest.tee_stderrs)
        copies = (dest.filtered_stdout, dest.filtered_stderr)
        for needles, files, path in zip(self._filters, tee_logs, copies, strict=True):
            if needles:
                copy = open(path, "w", encoding="utf-8", errors="replace")  # noqa: SIM115  closed with the context
                self._copies.append(copy)
                tails.append(TailLog(self.name, files, copy, self._prefixes, log_line_filter=_holds_any(needles)))
        return tails


def _is_stopped(pid: int) -> bool:
    """Whether a signal such as SIGSTOP has stopped a process, where the system tells."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] == "T"


def _is_full(folder: str) -> bool:
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_blocks > 0 and disk.f_bavail == 0


def _holds_any(needles: list[str]) -> Callable[[str], bool]:
    return lambda line: any(needle in line for needle in needles)
