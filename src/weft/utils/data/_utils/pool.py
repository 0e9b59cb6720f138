"""The worker processes of a loader: their start, messages, and end."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from weft._base.device import CPU
from weft._base.forks import renew_in_forks
from weft._lazy.flushing import flush_pending
from weft._lazy.runtime import jax_device
from weft.errors import ArgumentError, WorkerError
from weft.utils.data._utils.fetch import Source
from weft.utils.data._utils.main import main_if_importable
from weft.utils.data._utils.transfer import SharedSegment, WorkerPayload, pickled, read
from weft.utils.data._utils.worker import work, work_forked

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import Batch

_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",  # a second process cannot open an accelerator, or would take memory from the first
    "NPROC": "1",  # the number of XLA's threads; as in PyTorch, a worker has one
}
_QUIET = {"WEFT_SLOW_COMPILE_SECONDS": "1e6"}  # workers compile the same programs: only the first one reports them
_GRACE_SECONDS = 5.0
_environment_lock = threading.Lock()
renew_in_forks(globals(), "_environment_lock")  # a worker is forked by a thread that holds it


# no cell: what a forked worker has of other loaders
_pools: WeakSet[WorkerPool] = WeakSet()


class WorkerPool:
    """The workers of one loader. `segments[worker][slot]` is the memory for the result of a task.

    processes  in the order of their numbers; also after their end
    """

    def __init__(
        self, content: tuple[Source, object], workers: int, slots: int, base_seed: int, context: BaseContext
    ) -> None:
        self._owner = os.getpid()
        self._links: list[Connection] = []
        self.processes: list[Any] = []
        self._started: set[int] = set()
        self._segments = [[SharedSegment() for _ in range(slots)] for _ in range(workers)]
        self.closed = False
        self._forks = context.get_start_method() == "fork"
        payload = WorkerPayload(content)
        if self._forks:
            flush_pending()  # workers would compute what this thread has recorded
        else:
            jax_device(CPU)  # start XLA now, with this process's environment and not that of the workers
        _pools.add(self)
        try:
            for worker in range(workers):
                self._start(payload, worker, workers, base_seed, context)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self.close(grace=0)
            raise _cannot_be_sent(content, error) from error
        except BaseException:
            self.close(grace=0)
            raise
        finally:
            payload.close()

    def _start(self, payload: WorkerPayload, worker: int, workers: int, base_seed: int, context: Any) -> None:
        ours, theirs = context.Pipe(duplex=True)
        self._links.append(ours)
        args = (payload, theirs, self._segments[worker], worker, workers, base_seed)
        inherited = [link for pool in _pools for link in pool._links]
        target, args = (work_forked, (inherited, *args)) if self._forks else (work, args)
        process = context.Process(target=target, args=args, daemon=True)
        with _worker_environment(_ENVIRONMENT | (_QUIET if worker else {})), main_if_importable(), theirs:
            process.start()
        self.processes.append(process)

    @property
    def started(self) -> bool:
        """Whether all workers have reported that they are ready."""
        return len(self._started) == len(self.processes)

    def send(self, worker: int, message: object) -> None:
        """Send a task, or the base seed of a new pass, to a worker."""
        try:
            self._links[worker].send(message)
        except OSError:
            self._fail(worker)

    def receive(self, timeout: float | None) -> list[Any] | None:
        """Wait for messages, and return them; None if none arrives within `timeout` seconds.

        As soon as a worker has died, this kills all others and raises `RuntimeError`.
        """
        messages = []
        sentinels = {process.sentinel: worker for worker, process in enumerate(self.processes)}
        ready = wait([*self._links, *sentinels], timeout)
        # Messages first: a worker that has sent its error and ended is told by that error, and not by its end.
        for worker, link in enumerate(self._links):
            if link in ready:
                try:
                    messages.append((worker, link.recv()))
                except (EOFError, OSError):
                    self._fail(worker)
        for sentinel, worker in sentinels.items():
            if sentinel in ready:
                self._fail(worker)
        self._started.update(worker for worker, message in messages if message is None)
        return [message for _, message in messages if message is not None] if ready else None

    def read(self, worker: int, slot: int, sizes: Sequence[int], *, copy: bool, release: Callable[[], object]) -> Batch:
        """The object that a worker has written to a slot; `release` is called when the slot can be written to again."""
        return read(self._segments[worker][slot], sizes, copy=copy, release=release)

    def _fail(self, worker: int) -> None:
        process = self.processes[worker]
        process.join(_GRACE_SECONDS)
        text = _how_it_ended(process.pid, process.exitcode, self._forks or worker in self._started)
        self.close(grace=0)
        raise WorkerError(text)

    def close(self, grace: float = _GRACE_SECONDS) -> None:
        """End the workers. They finish their current batch, or are killed after `grace` seconds.

        Workers that are still starting are killed at once.
        """
        if self.closed or os.getpid() != self._owner:  # a copy of this object in a forked process ends no worker
            return
        self.closed = True
        for link in self._links:
            link.close()
        deadline = time.monotonic() + grace
        for worker, process in enumerate(self.processes):
            if worker in self._started:
                process.join(max(0.0, deadline - time.monotonic()))
            process.kill()  # does nothing if it has ended
        for process in self.processes:
            process.join()
        for segment in (segment for own in self._segments for segment in own):
            segment.close()


@contextmanager
def _worker_environment(variables: dict[str, str]) -> Iterator[None]:
    """Add variables to the environment of the processes that are started in the block."""
    with _environment_lock:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                del os.environ[name]
                if value is not None:
                    os.environ[name] = value


def _cannot_be_sent(content: tuple[Source, object], error: Exception) -> ArgumentError:
    source, init = content
    parts = {"dataset": source.dataset, "collate_fn": source.collate_fn, "worker_init_fn": init}
    guilty = next((name for name, part in parts.items() if not _can_be_pickled(part)), "what they are given")
    return ArgumentError(
        f"DataLoader: {guilty} cannot be sent to worker processes: {error}. It has to be picklable: define functions "
        "and classes at the top level of a module instead of a lambda or a local definition, open files in "
        "__getitem__ or worker_init_fn, or use num_workers=0"
    )


def _can_be_pickled(part: object) -> bool:
    try:
        pickled(part)
    except RuntimeError:  # queues and locks can be pickled only while a process is started
        return True
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def _how_it_ended(pid: int, code: int | None, started: bool) -> str:
    if code is not None and code < 0:
        return f"DataLoader worker (pid {pid}) is killed by signal: {signal.strsignal(-code)}."
    text = (
        f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {code}. Details are lost due to "
        "multiprocessing. Rerunning with num_workers=0 may give better error trace."
    )
    if started:
        return text
    return text + (
        " It ended before it was ready, see its output above. A worker imports the main script: everything that "
        'should run once has to stand under `if __name__ == "__main__":`.'
    )
