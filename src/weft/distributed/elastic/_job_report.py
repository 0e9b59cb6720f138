"""What is told of a running job: its nodes, their workers, and what these do. As JSON between agents and observers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Self

from weft._base.types import Json


@dataclass(frozen=True)
class WorkerReport:
    """A worker at a time.

    process         "running", "stopped" (by a signal such as SIGSTOP) or "ended"
    time            seconds of the node's monotonic clock, as all times in `numbers`
    resident_bytes  the memory of its process
    numbers         what it has written (`weft._base.activity`); empty if it writes nothing
    waits_for       "data", "collectives" or "calls"; None if it does not wait
    wait            what for, and for how many seconds
    compilation     the line that is being compiled for, and for how many seconds
    reported        the values of `weft.monitor.report`
    """

    rank: int
    local_rank: int
    pid: int
    process: str
    time: float
    resident_bytes: int
    numbers: dict[str, float] = field(default_factory=dict[str, float])
    waits_for: str | None = None
    wait: tuple[str, float] | None = None
    compilation: tuple[str, float] | None = None
    reported: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class NodeReport:
    """A node: its agent, and its workers. `answers` is false for one that has not been heard of in time."""

    node: int
    host: str
    agent: int
    answers: bool = True
    workers: tuple[WorkerReport, ...] = ()

    @classmethod
    def of(cls, data: dict[str, Json]) -> Self:
        """From what `json.loads` gives."""
        fields: dict[str, Json] = {**data}
        fields["workers"] = tuple(WorkerReport(**worker) for worker in data["workers"])
        return cls(**fields)


@dataclass(frozen=True)
class JobReport:
    """A job. `state` is that of the workers of the node that tells this: HEALTHY, STOPPED, SUCCEEDED or FAILED."""

    job: str
    program: str
    state: str
    seconds: float
    restarts: int
    max_restarts: int
    nodes: tuple[NodeReport, ...]

    def to_json(self) -> str:
        """As text of one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From such a text; `ValueError` for another."""
        try:
            data: dict[str, Json] = {**json.loads(text)}
            data["nodes"] = tuple(map(NodeReport.of, data["nodes"]))
            return cls(**data)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"this is no report of a job: {error!r}") from error
