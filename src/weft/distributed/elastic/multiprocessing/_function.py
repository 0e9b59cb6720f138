"""Processes that run a function."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from weft._base.flight import start_from_environment
from weft._base.types import AnyCallable, Arg, Args, Result
from weft.distributed.elastic.multiprocessing._activity import attach
from weft.distributed.elastic.multiprocessing._context import PContext
from weft.distributed.elastic.multiprocessing._logs import LogsSpecs
from weft.distributed.elastic.multiprocessing._lossy import survive_full_disks
from weft.distributed.elastic.multiprocessing._signals import die_by_signals
from weft.distributed.elastic.multiprocessing.errors import ProcessFailure, record
from weft.distributed.elastic.multiprocessing.redirects import send
from weft.errors import DistError

_CHUNK = 1 << 16


class MultiprocessContext(PContext):
    """Copies of a function, started with `start_method`: `spawn`, `forkserver` or `fork`.

    Arguments and return values are pickled. An exception is written to the rank's error file as text, so it need not be
    picklable. `fork` copies a process in which XLA may have started, and the copy may deadlock.
    """

    def __init__(
        self,
        name: str,
        entrypoint: AnyCallable | str,
        args: Mapping[int, Args],
        envs: dict[int, dict[str, str]],
        start_method: str,
        logs_specs: LogsSpecs,
        *options: Arg,
        **named_options: Arg,
    ) -> None:
        super().__init__(name, entrypoint, args, envs, logs_specs, *options, **named_options)
        self.start_method = start_method
        self._start_context: Result = multiprocessing.get_context(start_method)
        self._processes: dict[int, BaseProcess] = {}
        self._values: dict[int, Connection] = {}
        self._received: dict[int, bytearray] = {rank: bytearray() for rank in range(self.nprocs)}

    def _launch(self, local_rank: int) -> int:
        reader, writer = self._start_context.Pipe(duplex=False)
        # The agent reads while it waits for ends; a worker that is stopped within a value must not stop it, too.
        os.set_blocking(reader.fileno(), False)
        self._values[local_rank] = reader
        process = self._processes[local_rank] = self._start_context.Process(
            target=_work,
            args=(
                self.entrypoint,
                self.args[local_rank],
                self.envs[local_rank],
                self.stdouts[local_rank],
                self.stderrs[local_rank],
                writer,
            ),
            name=f"{self.name}{local_rank}",
        )
        try:
            process.start()
        except BaseException:
            del self._processes[local_rank]
            raise
        finally:
            # This process's copy: while it is open, the reader never sees the end.
            writer.close()
        assert process.pid is not None, "a started process has a number"
        return process.pid

    def _exit_code(self, local_rank: int) -> int | None:
        return self._processes[local_rank].exitcode

    def _readers(self) -> list[int]:
        return [self._values[rank].fileno() for rank in self._running() if not self._values[rank].closed]

    def _collect(self) -> None:
        for rank, reader in self._values.items():
            with suppress(BlockingIOError):
                while not reader.closed:
                    if not (chunk := os.read(reader.fileno(), _CHUNK)):
                        reader.close()
                    self._received[rank] += chunk

    def _return_values(self) -> dict[int, Result]:
        return {rank: self._unpacked(rank) for rank in range(self.nprocs)}

    def _unpacked(self, rank: int) -> Result:
        data = bytes(self._received[rank])
        if not data:  # it has ended by `sys.exit(0)` or `os._exit(0)`
            return None
        try:
            return pickle.loads(data)
        except Exception as error:
            raise DistError(
                f"{self.name}: the value that local rank {rank} returned cannot be read: {error}"
            ) from error

    def _unexplained(self, failure: ProcessFailure) -> str:
        return (
            f"exit code {failure.exitcode} without an exception: the function ended its process, or was never called, "
            'as its output may tell; a script that starts functions does so below `if __name__ == "__main__":`, since '
            "their processes import it"
        )

    def _release(self) -> None:
        for reader in self._values.values():
            reader.close()
        for process in self._processes.values():
            with suppress(ValueError):  # it is still running
                process.close()
        self._processes.clear()


def _work(
    function: AnyCallable,
    args: Args,
    env: dict[str, str],
    stdout: str,
    stderr: str,
    writer: Connection,
) -> None:
    """The main function of a worker."""
    die_by_signals()
    with suppress(PermissionError):  # it already leads a session
        os.setsid()
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(1)  # the guardian does not know this process yet
    os.environ.update(env)
    for std, path in (("stdout", stdout), ("stderr", stderr)):
        if path:
            send(std, path)
    survive_full_disks()
    start_from_environment()
    attach()
    record(_returned)(function, args, writer)


def _returned(function: AnyCallable, args: Args, writer: Connection) -> None:
    """Call the function and send its return value."""
    value = function(*args)
    try:
        data = pickle.dumps(value)
    except Exception as error:
        name = getattr(function, "__qualname__", function)
        raise DistError(f"the value that {name} returned cannot be sent to the parent: {error}") from error
    with os.fdopen(os.dup(writer.fileno()), "wb") as pipe:
        pipe.write(data)
