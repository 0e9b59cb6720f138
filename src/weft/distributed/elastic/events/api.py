"""The fields of events, and their JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum

from weft._base.types import Json

EventMetadataValue = str | int | float | bool | None


class EventSource(str, Enum):  # noqa: UP042  str() gives the member's name, as PyTorch's does
    """The producer of an event."""

    AGENT = "AGENT"
    WORKER = "WORKER"


@dataclass
class Event:
    """Something that happened in a job; `timestamp` is in milliseconds."""

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, EventMetadataValue] = field(default_factory=dict[str, EventMetadataValue])

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: str | Event) -> Event:
        """The event of a JSON text; an event is returned unchanged."""
        if isinstance(data, Event):
            return data
        fields: dict[str, Json] = json.loads(data)
        fields["source"] = EventSource[fields["source"]]
        return Event(**fields)

    def serialize(self) -> str:
        """The event as JSON."""
        return json.dumps(asdict(self))


class NodeState(str, Enum):  # noqa: UP042  str() gives the member's name, as PyTorch's does
    """The state of a node in a rendezvous."""

    INIT = "INIT"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass
class RdzvEvent:
    """Something that happened to a node in a rendezvous; `error_trace` is a traceback if it failed."""

    name: str
    run_id: str
    message: str
    hostname: str
    pid: int
    node_state: NodeState
    master_endpoint: str = ""
    rank: int | None = None
    local_id: int | None = None
    error_trace: str = ""

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: str | RdzvEvent) -> RdzvEvent:
        """The event of a JSON text; an event is returned unchanged."""
        if isinstance(data, RdzvEvent):
            return data
        fields: dict[str, Json] = json.loads(data)
        fields["node_state"] = NodeState[fields["node_state"]]
        return RdzvEvent(**fields)

    def serialize(self) -> str:
        """The event as JSON."""
        return json.dumps(asdict(self))
