"""Processes that are ranks of a job, and cases that share such a job."""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import socket
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic

import pytest

from tests.forked import started

PATIENCE = 240  # seconds

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="the extra is not installed: pip install weft[mpi]"
)


def mpiexec(size, *arguments):
    """The command of a job of `size` ranks, each `python ARGUMENTS`."""
    return [str(Path(sys.executable).parent / "mpiexec"), "-n", str(size), sys.executable, *arguments]


def start(command, **environment):
    """A process whose output is kept; forked where it can be."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return started(command, env={**os.environ, **environment}, text=True, **pipes)


def ended(processes, seconds=PATIENCE):
    """Exit code, output and errors of each, when all have ended."""
    running = list(processes)
    try:
        said = [process.communicate(timeout=seconds) for process in running]
    finally:
        for process in running:
            process.kill()
    return [(process.returncode, *texts) for process, texts in zip(running, said, strict=True)]


def in_threads(count, function):
    """Call `function(number)` in so many threads at once; raise what the first that fails has raised."""
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(function, number) for number in range(count)]:
            done.result(PATIENCE)


# --- cases that share a job ---

_PORT = "TEST_CASES_PORT"  # of the environment of a job's processes


class Cases(list):
    """Functions that are cases. As a decorator it takes in one more."""

    def __call__(self, case):
        self.append(case)
        return case


class Job:
    """Processes that run cases as they are told, one after another, so that many tests share their start.

    `commands` gives the command of each, for a folder to meet in; `serving` is how many processes call `serve`. A case
    that fails ends its job, and the next one starts another.
    """

    def __init__(self, commands, serving, new_folder, **environment):
        self._commands, self._serving, self._new_folder = commands, serving, new_folder
        self._environment = environment
        self._processes, self._connections, self._logs = [], {}, []

    def run(self, case):
        """Fail as the case does in the first process that fails, or has not done it in time."""
        if not self._connections:
            self._start()
        failed = {}
        for connection in self._connections.values():
            with suppress(OSError):  # the answer tells that it has ended
                connection.send_bytes(case.__name__.encode())
        end = monotonic() + PATIENCE + 10  # the processes tell where they hang
        for who, connection in self._connections.items():
            if text := self._answer(connection, end):
                failed[who] = text
        if failed:
            report = "\n".join(f"in {who}:\n{text}" for who, text in failed.items())
            pytest.fail(f"{case.__name__} fails {report}\n{self.kill()}", pytrace=False)

    def _answer(self, connection, end):
        if not connection.poll(max(0, end - monotonic())):
            return f"no answer in {PATIENCE} s"
        try:
            return connection.recv_bytes().decode()
        except (EOFError, OSError):
            return "the process has ended"

    def _start(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            environment = {**os.environ, **self._environment, _PORT: str(server.getsockname()[1])}
            folder = self._new_folder()
            for number, command in enumerate(self._commands(folder)):
                self._logs.append(folder / f"{number}.log")
                with self._logs[-1].open("w") as log:
                    streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
                    self._processes.append(started(command, env=environment, **streams))
            server.settimeout(0.1)
            end = monotonic() + PATIENCE
            while len(self._connections) < self._serving:
                try:
                    connection = Connection(server.accept()[0].detach())
                    self._connections[connection.recv_bytes().decode()] = connection
                except TimeoutError:
                    if monotonic() > end or any(process.poll() is not None for process in self._processes):
                        pytest.fail(f"the job does not start: {self.kill()}", pytrace=False)
        self._connections = dict(sorted(self._connections.items()))

    def end(self):
        """Let all processes come to their end, and require that it is a good one."""
        for connection in self._connections.values():
            connection.close()
        try:
            codes = [process.wait(PATIENCE) for process in self._processes]
        except subprocess.TimeoutExpired:
            pytest.fail(f"the job does not end:\n{self.kill()}", pytrace=False)
        said = self.kill()
        assert not any(codes), f"exit codes {codes}\n{said}"
        return said

    def kill(self):
        """End what runs; returns all that was printed."""
        for process in self._processes:
            process.kill()
            process.wait()
        for connection in self._connections.values():
            connection.close()
        said = "".join(log.read_text() for log in self._logs)
        self._processes, self._connections, self._logs = [], {}, []
        return said


def serve(who, cases):
    """Run cases, functions by name, as the tests say, until they are done."""
    address = "127.0.0.1", int(os.environ[_PORT])
    with Connection(socket.create_connection(address).detach()) as tests:
        tests.send_bytes(who.encode())
        with suppress(EOFError):
            while True:
                tests.send_bytes(_error_of(cases[tests.recv_bytes().decode()]).encode())


def _error_of(case):
    """The traceback of what a case raises, else nothing. It keeps no frame, as what these refer to would stay."""
    faulthandler.dump_traceback_later(PATIENCE)
    try:
        case()
    except BaseException:
        return traceback.format_exc()
    finally:
        faulthandler.cancel_dump_traceback_later()
    return ""
