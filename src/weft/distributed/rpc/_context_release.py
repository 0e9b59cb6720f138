"""Release of contexts of distributed autograd: the creator tells the workers it has called, and these tell others."""

from __future__ import annotations

from functools import partial
from typing import Protocol, TypeVarTuple

from weft._base.types import Arg
from weft._comm.transport.reactor import Reactor
from weft.distributed.rpc._call import PendingCall
from weft.distributed.rpc._contexts import Contexts, creator_of
from weft.distributed.rpc._peers import Peers
from weft.distributed.rpc._protocol import Answering, Note, Reply, Request, request
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.errors import RpcError
from weft.futures import Future

Args = TypeVarTuple("Args")


class ReleasingAgent(Answering, Protocol):
    """An agent, as far as the release of contexts needs it."""

    workers: Workers
    peers: Peers
    contexts: Contexts
    reactor: Reactor

    def ask(self, to: WorkerInfo, request: Request[*Args], *args: *Args, limit: float | None = None) -> PendingCall:
        """Begin a call of a control."""
        ...

    def tell(self, to: WorkerInfo, note: Note[Arg, *Args], *args: *Args) -> None:
        """Call a control without an answer."""
        ...


@Note
def release(agent: ReleasingAgent, context_id: int) -> None:
    """Release a context here, and on the workers with which this one has exchanged messages in it."""
    context = agent.contexts.release(context_id)
    if context is not None:
        # The release runs along the same connections as the calls did. Where there is none this way round, connecting
        # blocks, which a note's handler must not do.
        for peer in [peer for peer in context.peers if peer.id != creator_of(context_id)]:
            if agent.peers.existing(peer) is not None:
                agent.tell(peer, release, context_id)
            else:
                agent.reactor.run(lambda peer=peer: agent.tell(peer, release, context_id))


@request()
def join_context(reply: Reply[ReleasingAgent], context_id: int, worker: WorkerInfo) -> None:
    """Answered with whether a context of this worker still exists; if so, `worker` will be told of its end."""
    reply.send(reply.agent.contexts.join(context_id, worker))


def check_creators(agent: ReleasingAgent) -> None:
    """Tell the creators of all contexts that this worker takes part, since the worker that called it may be lost."""
    # The worker that brought a context here is the one that would tell of its end; if it is lost, only the creator can.
    for context_id, creator in agent.contexts.of_others():
        agent.reactor.run(partial(_check_creator, agent, context_id, creator))


def _check_creator(agent: ReleasingAgent, context_id: int, number: int) -> None:
    try:
        creator = agent.workers.find(number)
    except RpcError:
        creator = None
    if creator is None:
        release(agent, context_id)
        return
    joined = agent.ask(creator, join_context, context_id, agent.me, limit=0).push()
    joined.add_done_callback(partial(_release_unless_so, agent, context_id))


def _release_unless_so(agent: ReleasingAgent, context_id: int, joined: Future[bool]) -> None:
    try:
        goes_on = joined.value()
    except RpcError:
        goes_on = False
    if not goes_on:
        release(agent, context_id)
