"""Timers over a named pipe, for any workers on this host."""

from __future__ import annotations

import json
import logging
import os
import select
import signal as signals
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from weft.distributed.elastic.timer.api import TimerClient, TimerRequest, Timers, end_process, on_monotonic_clock
from weft.errors import DistError

_CHUNK = 1 << 16
_PATIENCE = 1.0  # seconds that a client waits for its server
_RETRY = 0.02
_log = logging.getLogger(__name__)


class FileTimerRequest(TimerRequest):
    """A timer of the process `worker_pid`. When it expires, it gets `signal`, or none if that is not positive."""

    __slots__ = ("signal", "version")

    def __init__(self, worker_pid: int, scope_id: str, expiration_time: float, signal: int = 0) -> None:
        super().__init__(worker_pid, scope_id, expiration_time)
        self.version = 1
        self.signal = signal

    @property
    def worker_pid(self) -> int:
        """The worker's process id."""
        return self.worker_id

    def _fields(self) -> tuple[object, ...]:
        return *super()._fields(), self.signal

    def to_json(self) -> str:
        """The request as a line of JSON."""
        fields = ("scope_id", "expiration_time", "signal")
        return json.dumps(
            {
                "version": self.version,
                "pid": self.worker_pid,
                **{name: getattr(self, name) for name in fields},
            }
        )

    @classmethod
    def from_json(cls, line: str | bytes) -> FileTimerRequest:
        """Read what `to_json` has written; raises `ValueError`, `KeyError` or `TypeError` on anything else."""
        data = json.loads(line)
        return cls(int(data["pid"]), str(data["scope_id"]), float(data["expiration_time"]), int(data["signal"]))


class FileTimerClient(TimerClient):
    """Sends requests to the `FileTimerServer` that has created the pipe `file_path`; many clients share one server.

    When a timer expires, this process gets `signal`, or no signal if that is 0 or negative.
    """

    def __init__(self, file_path: str, signal: int = signals.SIGKILL) -> None:
        self._file_path = file_path
        self.signal = signal

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Set the timer of a scope. Raises `BrokenPipeError` if no server answers within a second."""
        self._send(FileTimerRequest(os.getpid(), scope_id, on_monotonic_clock(expiration_time), self.signal))

    def release(self, scope_id: str) -> None:
        """Remove the timer of a scope. Raises `BrokenPipeError` if no server answers within a second."""
        self._send(FileTimerRequest(os.getpid(), scope_id, -1, 0))

    def _send(self, request: FileTimerRequest) -> None:
        line = (request.to_json() + "\n").encode()
        if len(line) > select.PIPE_BUF:  # longer lines are not written atomically
            raise DistError(f"FileTimerRequest larger than {select.PIPE_BUF} bytes is not supported: {line.decode()}")
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self._write(line)
                return
            except OSError as error:  # there is no pipe, no reader, or no space
                if time.monotonic() >= deadline:
                    raise BrokenPipeError(
                        "Could not send the FileTimerRequest because FileTimerServer is not available."
                    ) from error
                time.sleep(_RETRY)

    def _write(self, line: bytes) -> None:
        pipe = os.open(self._file_path, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(pipe, line)
        finally:
            os.close(pipe)


def _ignore(name: str, request: FileTimerRequest | None) -> None: ...


class FileTimerServer:
    """Creates the named pipe `file_path`, and ends processes whose timers have expired.

    It checks whenever requests arrive, and at least every `max_interval` seconds. `log_event` is called with a request
    and one of the texts `watchdog started`, `timer expired`, `kill worker process`, `watchdog stopped`.
    """

    def __init__(
        self,
        file_path: str,
        run_id: str,
        max_interval: float = 10,
        daemon: bool = True,
        log_event: Callable[[str, FileTimerRequest | None], None] | None = None,
    ) -> None:
        self._file_path = file_path
        self._run_id = run_id
        self._max_interval = max_interval
        self._daemon = daemon
        self._log_event = log_event or _ignore
        self._timers = Timers[FileTimerRequest]()
        self._partial = b""
        self._stop_signaled = False
        self._watchdog_thread: threading.Thread | None = None
        self._last_progress = time.monotonic()
        if os.path.exists(file_path):
            os.remove(file_path)
        os.mkfifo(file_path, 0o600)
        # Opened for reading and writing: neither this call nor a read then waits for a client, and `stop` can wake the
        # thread.
        self._pipe: int | None = os.open(file_path, os.O_RDWR | os.O_NONBLOCK)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._watchdog_thread = threading.Thread(target=self._watch, name="FileTimerServer", daemon=self._daemon)
        self._watchdog_thread.start()
        self._log_event("watchdog started", None)

    def stop(self) -> None:
        """End the thread and remove the pipe. Further calls do nothing."""
        if self._pipe is None:
            return
        self._stop_signaled = True
        if self._watchdog_thread:
            with suppress(BlockingIOError):  # the pipe is full, so the thread is awake
                os.write(self._pipe, b"\n")
            self._watchdog_thread.join()
            self._watchdog_thread = None
        os.close(self._pipe)
        self._pipe = None
        if os.path.exists(self._file_path):
            os.remove(self._file_path)
        self._log_event("watchdog stopped", None)

    @staticmethod
    def is_process_running(pid: int) -> bool:
        """Whether there is a process with this id that may be sent signals."""
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return True

    def get_last_progress_time(self) -> int:
        """The time of the last check, in seconds since the epoch."""
        return int(time.time() - (time.monotonic() - self._last_progress))

    def register_timers(self, timer_requests: list[FileTimerRequest]) -> None:
        """Set or release timers."""
        self._timers.register(timer_requests)

    def clear_timers(self, worker_pids: set[int]) -> None:
        """Remove all timers of these processes, and of processes that have ended."""
        gone = {pid for pid in self._timers.workers() if not self.is_process_running(pid)}
        self._timers.clear(worker_pids | gone)

    def get_expired_timers(self, deadline: float) -> dict[int, list[FileTimerRequest]]:
        """Timers that end at or before `deadline`, by process id."""
        return self._timers.expired(deadline)

    def _watch(self) -> None:
        while not self._stop_signaled:
            try:
                self._run_watchdog()
            except Exception:  # for instance of the user's `log_event`; the checks continue
                _log.exception("Error running watchdog")

    def _run_watchdog(self) -> None:
        self.register_timers(self._get_requests())
        expired = self.get_expired_timers(time.monotonic())
        if expired:
            _log.info("Timers expired for run:[%s] %s.", self._run_id, expired)
        reaped = {pid for pid, requests in expired.items() if self._reap(pid, requests)}
        self.clear_timers(reaped)
        self._last_progress = time.monotonic()

    def _reap(self, pid: int, requests: list[FileTimerRequest]) -> bool:
        """End a process by the first signal that its expired timers name; False to try again."""
        for request in sorted(requests, key=lambda each: each.expiration_time):
            self._log_event("timer expired", request)
            if request.signal > 0:
                done = end_process(pid, request.signal)
                if done:
                    name = signals.Signals(request.signal).name
                    _log.warning("process %s let the timer %r expire and gets %s", pid, request.scope_id, name)
                    self._log_event("kill worker process", request)
                return done
        _log.info("No signal specified with worker=[%s]. Do not reap it.", pid)
        return True

    def _get_requests(self) -> list[FileTimerRequest]:
        """The requests that have arrived, after waiting at most `max_interval` seconds."""
        assert self._pipe is not None, "the thread ends before the pipe is closed"
        if not select.select([self._pipe], [], [], self._max_interval)[0]:
            return []
        *lines, self._partial = (self._partial + os.read(self._pipe, _CHUNK)).split(b"\n")
        requests: list[FileTimerRequest] = []
        for line in filter(None, lines):
            try:
                requests.append(FileTimerRequest.from_json(line))
            except (ValueError, KeyError, TypeError) as error:
                _log.warning("%s: not a timer request: %r (%r)", self._file_path, line, error)
        return requests
