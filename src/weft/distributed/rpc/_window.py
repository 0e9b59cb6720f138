"""What is seen of a worker by who looks on from outside, over a connection that is no worker's."""

from __future__ import annotations

import pickle
from itertools import count
from typing import Any

from weft._comm.deadline import Deadline
from weft._comm.pipe import Bytes, Pipe
from weft.distributed.rpc._agent import ANSWER, ERROR, UNCOUNTED
from weft.distributed.rpc._message import unpack
from weft.distributed.rpc._place import VISITOR, Record, Ways, reach
from weft.distributed.rpc._service import raised_there
from weft.distributed.rpc._status import Status
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import DistNetworkError, JobKeyError, PeerGoneError


class Window:
    """The status of a worker now and the time before, and in what state it is: "ok", "gone", "silent", "unreachable".

    `note` says why it cannot be reached.
    """

    def __init__(self, worker: WorkerInfo, ways: Ways) -> None:
        self.worker = worker
        self.before: Status | None = None
        self.now: Status | None = None
        self.state = self.note = ""
        self._ways = ways
        self._pipe: Pipe | None = None
        self._numbers = count(1)
        self._answers: dict[int, Any] = {}

    def look(self, place: Record, seconds: float) -> None:
        """Ask the worker, which may take some seconds to answer. `JobKeyError` where it has another key."""
        self.state, self.note = "ok", ""
        try:
            self.before, self.now = self.now, self._asked(place, Deadline(seconds))
        except JobKeyError:
            raise
        except PeerGoneError:
            self.state = "gone"
        except TimeoutError:
            self.state = "silent"
        except (DistNetworkError, OSError) as error:
            self.state, self.note = "unreachable", f"{self.worker.name} cannot be reached: {error}"

    def close(self) -> None:
        """Look no more."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipe.close("nobody looks any more")
            pipe.free()

    def _asked(self, place: Record, deadline: Deadline) -> Status:
        if self._pipe is None:
            sock, cipher = reach(place, self._ways, VISITOR, deadline)
            self._pipe = Pipe(sock, self, self.worker.name, cipher)
        pipe, number = self._pipe, next(self._numbers)
        pipe.put(UNCOUNTED, number, pickle.dumps(("status", ())))
        pipe.flush()
        while number not in self._answers:
            if pipe.why is not None:
                self.close()
                raise PeerGoneError(f"the connection was lost: {pipe.why}")
            if deadline.expired:
                raise TimeoutError
            pipe.read(wait=True)
        answer, self._answers = self._answers[number], {}
        if isinstance(answer, BaseException):
            raise answer
        return answer

    # --- what a pipe tells its owner ---

    def received(self, pipe: Pipe, kind: int, number: int, body: Bytes, buffers: list[memoryview]) -> None:
        """A frame has come."""
        if kind == ANSWER:
            self._answers[number] = unpack(body, buffers)
        elif kind == ERROR:
            self._answers[number] = raised_there(body, buffers)

    def lost(self, pipe: Pipe) -> None:
        """The connection has ended, which `pipe.why` tells."""
