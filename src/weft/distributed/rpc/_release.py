"""How workers let go of contexts of distributed autograd: the maker tells whom it has brought in, and they go on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from weft.distributed.rpc._contexts import maker_of
from weft.distributed.rpc._protocol import Note, Reply, request
from weft.distributed.rpc._workers import WorkerInfo
from weft.errors import RpcError
from weft.futures import Future

if TYPE_CHECKING:
    from weft.distributed.rpc._agent import Agent


@Note
def release(agent: Agent, context_id: int) -> None:
    """Let go of a context, and have others do so that this worker has brought into it; its maker knows."""
    context = agent.contexts.release(context_id)
    if context is not None:
        for peer in [peer for peer in context.peers if peer.id != maker_of(context_id)]:
            if agent.peers.known(peer) is not None:
                agent.tell(peer, release, context_id)
            else:
                agent.reactor.run(lambda peer=peer: agent.tell(peer, release, context_id))


@request()
def join_context(reply: Reply, context_id: int, worker: WorkerInfo) -> None:
    """Whether a context of this worker goes on, of whose end another one is to be told."""
    reply.send(reply.agent.contexts.join(context_id, worker))


def find_makers(agent: Agent) -> None:
    """Have those who made contexts know that this worker has them: who has brought it there may have gone."""
    for context_id, maker in agent.contexts.of_others():
        agent.reactor.run(partial(_find_maker, agent, context_id, maker))


def _find_maker(agent: Agent, context_id: int, number: int) -> None:
    try:
        maker = agent.workers.find(number)
    except RpcError:
        maker = None
    if maker is None:
        release(agent, context_id)
        return
    joined = agent.ask(maker, join_context, context_id, agent.me, limit=0).push()
    joined.add_done_callback(partial(_release_unless_so, agent, context_id))


def _release_unless_so(agent: Agent, context_id: int, joined: Future[bool]) -> None:
    try:
        goes_on = joined.value()
    except RpcError:
        goes_on = False
    if not goes_on:
        release(agent, context_id)
