"""The keys under which the processes of a job meet in a store. No other module makes such a key.

Processes that meet must form the same key. So a key never contains what one process alone knows: how often it has
called a function or was started, or where it is in a loop. Where occasions must be told apart, their number is common:

| part of a store | who must agree | on what number, and how |
|---|---|---|
| `rendezvous`, `nodes_of` | all launchers of a job | on none: they share the job's id |
| `nodes_round` | the launchers of a round | on the round, which stands in the state of the rendezvous |
| `in_round`, `default_groups`, `remote_workers` | the workers of all nodes | on the round, which their launchers tell |
| `meeting` | the ranks that come to it | on how often ranks have come, which the store counts (`meeting.py`) |
| `group` | all ranks of the default group | on their calls of `new_group`, which a barrier compares first |
| `own_group` | the members of a group | on none: they meet in it |
| `shrunk` | the ranks that remain of a group | on none: they name those that do not |
| `REPLICAS`, `FIGURES` | processes that one other has started | on none: each is used once |

The other keys stand in one of these parts. Each is used once there, is removed after use, names the one process that
writes it, or contains a number that the store counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

# --- workers --------------------------------------------------------------------------------------------------


def round_number() -> str:
    """The number of the present start of the workers, from the launcher; PyTorch's launcher tells its restarts only."""
    return os.environ.get("WEFT_RENDEZVOUS_ROUND", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def in_round() -> str:
    """The part of a launcher's store for one start of the workers, which must not see the keys of earlier ones."""
    return f"workers/{round_number()}"


def default_groups(name: str) -> str:
    """The part for default groups that processes create under this name; several starts may share the store."""
    return f"{name or 'default'}/{round_number()}"


def joining(rank: int) -> str:
    """The meeting to which a rank has come and in which it waits; empty if it waits in none."""
    return f"joining/{rank}"


def occasion(size: int, rank: int) -> str:
    """The number of times that a rank has come to a meeting of `size` ranks."""
    return f"occasions/{size}/{rank}"


def meeting(size: int, number: int) -> str:
    """The part for one meeting of `size` ranks."""
    return f"{size}.{number}"


LATEST = "latest"
"""The part for the meeting that was held last."""

ARRIVED, OUTCOME, DEPARTED = "arrived", "outcome", "departed"
"""In a meeting: how many ranks wait there, how it has ended, and that all know why it has failed."""


def member(rank: int) -> str:
    """In a meeting: what a rank tells the others."""
    return f"member/{rank}"


def group(number: int) -> str:
    """The part for the group that the n-th call of `new_group` creates."""
    return f"group/{number}"


def own_group(members: Iterable[int]) -> str:
    """The part in which the members of a group meet, in this order, to create it by themselves."""
    return f"members/{','.join(map(str, members))}"


def shrunk(excluded: Iterable[int]) -> str:
    """The part for a group that goes on without some of its ranks."""
    return f"without/{','.join(map(str, sorted(excluded)))}"


MEMORY = "memory"
"""In a group: the memory that its ranks share."""

COORDINATOR = "coordinator"
"""In a group: how to reach the coordinator of XLA's runtime."""


def link(rank: int) -> str:
    """In a group: where a rank listens for the others."""
    return f"links/{rank}"


FAILED_LINK = "links/failure"
"""In a group: why a rank cannot connect to the others."""


def runtime(rank: int) -> str:
    """In a group: the process of a rank, and the job of XLA's runtime to which it belongs."""
    return f"runtime/{rank}"


def mpi(rank: int) -> str:
    """In a group: that a rank has come to connect by MPI."""
    return f"mpi/{rank}"


def without_gradient(rank: int) -> str:
    """In a group: the parameters that have no gradient on a rank."""
    return f"ddp/without a gradient/{rank}"


def sent(channel: int) -> str:
    """In a group: how many messages have been sent to a channel."""
    return f"channel/{channel}/sent"


def received(channel: int) -> str:
    """In a group: how many messages of a channel have been received."""
    return f"channel/{channel}/received"


def message(channel: int, number: int) -> str:
    """In a group: a message of a channel that has not been received."""
    return f"channel/{channel}/{number}"


REPLICAS = "replicas"
"""The part for the replicas that one call of `xmp.spawn` has started."""

FIGURES = "weft.utils.bottleneck"
"""The part for the figures of all ranks that `weft.utils.bottleneck` shows."""

FIGURES_READ = "read"
"""There: that rank 0 has read them."""


# --- workers of remote calls ----------------------------------------------------------------------------------

RPC_ANY = "any"
"""The part for workers that join and leave at any time, beside those of meetings."""

NEXT_NUMBER = "next"
"""The number of the worker that joins next without a rank."""

HAS_DEVICES = "has devices"
"""That a worker has named devices."""


def remote_workers() -> str:
    """The part for jobs of remote calls; several starts may share the store."""
    return f"rpc/{round_number()}"


def worker_number(number: int) -> str:
    """The endpoint of the worker with a number."""
    return f"id/{number}"


WORKER_NAMES = "name/"
"""Prefix of the keys of `worker_name`."""


def worker_name(name: str) -> str:
    """The endpoint of the worker with a name."""
    return f"{WORKER_NAMES}{name}"


def incarnation(number: int) -> str:
    """How many workers have had a number."""
    return f"incarnations/{number}"


def devices(number: int) -> str:
    """What is wrong with the devices of a worker; empty if nothing is."""
    return f"devices/{number}"


def knows_devices(number: int) -> str:
    """That a worker knows what is wrong with devices."""
    return f"knows devices/{number}"


_WORKER = re.compile(r"(?P<job>(?P<round>(?:.*/)?rpc/\d+)/[^/]+)/id/(?P<number>\d+)")


def worker_of(key: str) -> tuple[str, str, int] | None:
    """Of a key of `worker_number` in a whole store: the part of all jobs of its start, its job's, and the number."""
    match = _WORKER.fullmatch(key)
    return None if match is None else (match["round"], match["job"], int(match["number"]))


# --- launchers ------------------------------------------------------------------------------------------------


def rendezvous(run_id: str) -> str:
    """The state of a job's rendezvous."""
    return f"weft.rendezvous.{run_id}"


def nodes_of(run_id: str) -> str:
    """The part for what the nodes of a job tell beside the state."""
    return f"{rendezvous(run_id)}.nodes"


def nodes_round(run_id: str, number: int) -> str:
    """The part for the nodes of one round."""
    return f"{rendezvous(run_id)}.{number}"


WAKE = "wake"
"""That the leading node has something to do."""

HEARTBEATS = "heartbeat/"
"""Prefix of the keys of `heartbeat`."""


def heartbeat(node: object) -> str:
    """The last sign of life of a node."""
    return f"{HEARTBEATS}{node}"


def rounds_of(leader: object) -> tuple[str, str]:
    """Two places for the round that a leader writes, since others may be reading the one that the state names."""
    return f"round/{leader}/0", f"round/{leader}/1"


def rank_of(leader: object, node: object) -> str:
    """The rank that a leader gives a node; each leader has its own, so that a former one cannot overwrite them."""
    return f"rank/{leader}/{node}"


def static_size(run_id: str) -> str:
    """The number of nodes of a job whose nodes have fixed ranks."""
    return f"{run_id}/nnodes"


def static_node(run_id: str, rank: int) -> str:
    """The process that is the node of this rank."""
    return f"{run_id}/node/{rank}"


def static_round(run_id: str) -> str:
    """The number of the last start of the workers of a node."""
    return f"{run_id}/round"


def agent_role(rank: int) -> str:
    """In a round: the number and role of a node's workers."""
    return f"weft/agent/role/{rank}"


def agent_ranks(rank: int) -> str:
    """In a round: the ranks of a node's workers."""
    return f"weft/agent/ranks/{rank}"


FINISHED, SEEN = "weft/agent/finished", "weft/agent/seen"
"""In a round: the workers of all nodes have finished; all nodes have seen that."""

REQUESTS, REPORTS = "weft/job/requests", "weft/job/report/"
"""In a round: how often nodes were asked for reports; prefix of the keys of `report`."""


def report(rank: int) -> str:
    """In a round: what a node tells of its workers."""
    return f"{REPORTS}{rank}"


def step_of_all(name: str, rank: int) -> str:
    """In a round: that the part of the tree below a node has reached a step; of node 0, that all nodes have."""
    return f"{name}/{rank or 'all'}"
