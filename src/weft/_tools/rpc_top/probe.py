"""Asks a worker for its status, over an observer's connection."""

from __future__ import annotations

import pickle
from itertools import count

from weft._base.types import Result
from weft._comm.deadline import Deadline
from weft._comm.transport.pipe import Bytes, CallPipe
from weft.distributed.rpc._errors import remote_error
from weft.distributed.rpc._listener import OBSERVER, ConnectOptions, Endpoint, connect
from weft.distributed.rpc._message import unpack
from weft.distributed.rpc._protocol import Frame
from weft.distributed.rpc._status import WorkerStatus, status
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import DistNetworkError, JobKeyError, PeerGoneError


class Probe:
    """The last two statuses of a worker, and its state: "ok", "gone", "silent" or "unreachable".

    `note` says why it cannot be reached.
    """

    def __init__(self, worker: WorkerInfo, options: ConnectOptions) -> None:
        self.worker = worker
        self.before: WorkerStatus | None = None
        self.now: WorkerStatus | None = None
        self.state = self.note = ""
        self._options = options
        self._pipe: CallPipe | None = None
        self._numbers = count(1)
        self._answers: dict[int, Result] = {}

    def update(self, endpoint: Endpoint, seconds: float) -> None:
        """Ask the worker for its status, with this timeout. `JobKeyError` if it has another key."""
        self.state, self.note = "ok", ""
        try:
            self.before, self.now = self.now, self._request(endpoint, Deadline(seconds))
        except JobKeyError:
            raise
        except PeerGoneError:
            self.state = "gone"
        except TimeoutError:
            self.state = "silent"
        except (DistNetworkError, OSError) as error:
            self.state, self.note = "unreachable", f"{self.worker.name} cannot be reached: {error}"

    def close(self) -> None:
        """Close the connection."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close("nobody looks any more")
            pipe.free()

    def _request(self, endpoint: Endpoint, deadline: Deadline) -> WorkerStatus:
        if self._pipe is None:
            channel = connect(endpoint, self._options, OBSERVER, deadline)
            self._pipe = CallPipe(channel.sock, self, self.worker.name, channel.session, channel.tls)
        pipe, number = self._pipe, next(self._numbers)
        pipe.put(status.kind, number, pickle.dumps((status.name, ())))
        pipe.flush()
        while number not in self._answers:
            if pipe.close_reason is not None:
                self.close()
                raise PeerGoneError(f"the connection was lost: {pipe.close_reason}")
            if deadline.expired:
                raise TimeoutError
            pipe.read(wait=True)
        answer, self._answers = self._answers[number], {}
        if isinstance(answer, BaseException):
            raise answer
        return answer

    # --- the handler of the pipe ---

    def received(self, pipe: CallPipe, kind: int, number: int, body: Bytes, buffers: list[memoryview]) -> None:
        """Handle a received frame."""
        if kind == Frame.ANSWER:
            self._answers[number] = unpack(body, buffers, None)
        elif kind == Frame.ERROR:
            self._answers[number] = remote_error(body, buffers)

    def lost(self, pipe: CallPipe) -> None:
        """Handle the end of the connection; `pipe.close_reason` is the reason."""
