"""Where an agent tells what its job does: at a Unix socket for this user, and at the port of its health check."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable

from weft.distributed.elastic._http import MOST_CONNECTIONS, PrivateServer, Response
from weft.distributed.elastic._job_report import JobReport, NodeReport
from weft.distributed.elastic.agent.server._job_metrics import metrics_page
from weft.distributed.elastic.agent.server._node_activity import NodeActivity
from weft.distributed.elastic.agent.server._node_exchange import NodeExchange
from weft.distributed.elastic.agent.server._worker_group import WorkerGroup
from weft.distributed.elastic.multiprocessing._entry import program_name

_log = logging.getLogger(__name__)

SOCKET_PREFIX = "weft-job-"
"""How the names of the sockets of agents begin, in the abstract namespace."""

RUNNING = "RUNNING"
"""What `/end` answers while the job goes on; otherwise the state of this node's workers."""

_WATCH_SECONDS = 10.0  # for which a request of the end is kept
_MOST_WATCHERS = MOST_CONNECTIONS // 2  # the others stay for questions that are answered at once
_GRACE = 1.0  # seconds in which those who wait for the end must have been told


class JobEndpoint:
    """The pages of an agent.

    /job      a `JobReport` of all nodes
    /node     one of this node alone
    /metrics  this node for Prometheus
    /end      answered when the job ends or, with `RUNNING`, after some seconds
    """

    def __init__(self, group: WorkerGroup, activity: NodeActivity, progress: Callable[[], tuple[float, int]]) -> None:
        """`progress()` gives the seconds for which the agent runs, and how often it has restarted workers."""
        self._group = group
        self._activity = activity
        self._progress = progress
        self._exchange = NodeExchange(group, activity.report)
        self._ended = threading.Event()
        self._watchers: set[threading.Thread] = set()
        self._server: PrivateServer | None = None
        try:
            self._server = PrivateServer(f"{SOCKET_PREFIX}{secrets.token_hex(8)}", self._answer)
        except OSError as error:  # not on Linux
            _log.info("`weft top` does not find this job by itself: %s", error)

    def close(self) -> None:
        """Tell those who wait for the end how it was, and answer no more."""
        self._ended.set()
        for watcher in list(self._watchers):
            watcher.join(_GRACE)
        self._exchange.close()
        if self._server is not None:
            self._server.close()
            self._server = None  # which refers to this, and through it to the store, that closes with its last user

    @property
    def _job(self) -> str:
        return self._group.spec.rdzv_handler.get_run_id()

    def page(self, path: str) -> Response | None:
        """The page at a path; None if there is none."""
        match path:
            case "/job":
                return self._report(self._exchange.all_nodes())
            case "/node":
                return self._report((self._activity.report(),))
            case "/metrics":
                return metrics_page(self._job, self._activity.report())
            case "/end":
                return self._end()
            case _:
                return None

    def _answer(self, path: str) -> Response:
        return self.page(path) or Response(f"there is no page {path}\n", "404 Not Found")

    def _report(self, nodes: tuple[NodeReport, ...]) -> Response:
        spec, (seconds, restarts) = self._group.spec, self._progress()
        report = JobReport(
            self._job,
            program_name(spec.entrypoint or "", spec.args),
            self._group.state.value,
            seconds,
            restarts,
            spec.max_restarts,
            nodes,
        )
        return Response(report.to_json() + "\n", kind="application/json")

    def _end(self) -> Response:
        # Sixteen watchers once kept everybody else from the health check.
        if len(self._watchers) >= _MOST_WATCHERS:
            return Response("too many wait for the end\n", "503 Service Unavailable")
        watcher = threading.current_thread()
        self._watchers.add(watcher)
        try:
            ended = self._ended.wait(_WATCH_SECONDS)
        finally:
            if not self._ended.is_set():
                self._watchers.discard(watcher)
        return Response(f"{self._group.state.value if ended else RUNNING}\n")
