"""How the agent that is asked for a job learns what the other nodes do: through the store of the round.

It raises a number in the store. The others look at the number every second or so, and where it has grown they write
their reports, with the number. So agents need no ports, the job's key is proved, and nothing is written while nobody
asks.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace

from weft._comm.stores import keys
from weft._comm.stores.store import Store
from weft.distributed.elastic._job_report import NodeReport
from weft.distributed.elastic.agent.server._worker_group import WorkerGroup
from weft.errors import DistError

_log = logging.getLogger(__name__)

_MOST_LOOKS = 1000  # a second, of all agents together
_POLL_SECONDS = 0.05
_FAILURES = (DistError, OSError, TimeoutError)


def look_seconds(nodes: int) -> float:
    """Seconds between an agent's looks at the store."""
    return max(0.5, nodes / _MOST_LOOKS)


class _Request(threading.Thread):
    """Asks other nodes, given by rank, for their reports, and collects these in `reports`, for some `seconds`."""

    def __init__(self, store: Store, ranks: list[int]) -> None:
        super().__init__(name="reports of other nodes", daemon=True)
        self.reports: dict[int, NodeReport] = {}
        self.seconds = 4 * look_seconds(len(ranks) + 1)
        self._store, self._ranks = store, ranks

    def run(self) -> None:
        with suppress(*_FAILURES):
            self._collect(time.monotonic() + self.seconds)

    def _collect(self, end: float) -> None:
        number = self._store.add(keys.REQUESTS, 1)
        while len(self.reports) < len(self._ranks) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
            for text in self._store.values_under(keys.REPORTS).values():
                answered, report = json.loads(text)
                if answered >= number and report["node"] in self._ranks:
                    self.reports[report["node"]] = NodeReport.of(report)


class NodeExchange:
    """Answers the requests of other agents, in a thread of its own, and makes requests."""

    def __init__(self, group: WorkerGroup, report: Callable[[], NodeReport]) -> None:
        self._group = group
        self._report = report
        self._ended = threading.Event()
        self._heard: dict[int, NodeReport] = {}
        self._request: _Request | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._answer_requests, name="reports of this node", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._ended.set()
        self._thread.join(1)  # the store may not answer, for which nobody waits

    def all_nodes(self) -> tuple[NodeReport, ...]:
        """The reports of all nodes, by rank; of those that are silent, the last ones. Takes a few seconds at most."""
        group, reports = self._group, {self._group.group_rank or 0: self._report()}
        others = [rank for rank in range(group.group_world_size or 1) if rank not in reports]
        if others and group.store is not None:
            request = self._requested(group.store, others)
            # In a thread with a limit of its own: a store that does not answer keeps nobody from seeing the node that
            # was asked.
            request.join(request.seconds)
            reports |= request.reports
        self._heard |= reports
        for rank in others:
            if rank not in reports:
                reports[rank] = replace(self._heard.get(rank, NodeReport(rank, "", 0)), answers=False)
        return tuple([reports[rank] for rank in sorted(reports)])

    def _requested(self, store: Store, ranks: list[int]) -> _Request:
        """The request that is under way, or a new one. One that the store does not answer is the only one."""
        with self._lock:
            if self._request is None or not self._request.is_alive():
                self._request = _Request(store, ranks)
                self._request.start()
            return self._request

    def _answer_requests(self) -> None:
        answered = 0
        while not self._ended.wait(look_seconds(self._group.group_world_size or 1)):
            store, rank = self._group.store, self._group.group_rank
            if store is None or rank is None or self._group.group_world_size == 1:
                continue
            try:
                number = int(store.get(keys.REQUESTS)) if store.check([keys.REQUESTS]) else 0
                if number and number != answered:  # smaller in a new round
                    store.set(keys.report(rank), json.dumps([number, asdict(self._report())]))
                answered = number
            except _FAILURES as error:
                _log.info("the store does not take the report of this node: %s", error)
