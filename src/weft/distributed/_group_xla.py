"""Groups that exchange arrays through XLA: by Gloo between CPUs, by NCCL or ICI between accelerators.

XLA's collectives have no timeouts, and hang if ranks call different ones. So before each operation the ranks compare
their calls over their own connections (`_comm/groups/message_group.py`). Then they run one program, a `shard_map` over
a mesh with one device for each rank. Point-to-point messages use the connections.
"""

from __future__ import annotations

import atexit
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from weft._base.types import Arg
from weft._comm.deadline import Deadline
from weft._comm.groups.message_group import MessageGroup
from weft._comm.groups.messages import MessageRequest
from weft._comm.groups.operations import CollectiveCall, size_mismatch
from weft._comm.groups.reductions import check_reduction
from weft._comm.groups.tcp_streams import TcpStreams, connect
from weft._comm.stores import keys
from weft._comm.stores.store import Store
from weft._comm.stores.tcp_store import host_of
from weft._comm.transport.addresses import address_of_own_name, addresses_of, location
from weft._comm.transport.tunnel import Tunnel, TunnelServer
from weft._lazy.precision import KEEP_CASTS
from weft._lazy.replicated import replication, set_replication
from weft._lazy.runtime import in_runtime, is_ready, join_runtime, unfinished
from weft.distributed._group_backend import GroupBackend
from weft.distributed._group_host import over_streams
from weft.distributed._messages import Array
from weft.distributed._reduce_op import PremulSum, Reduction, word_of
from weft.errors import CollectiveArgumentsError, DistBackendError, DistError
from weft.ops._jax import JaxRuntimeError, all_gather, all_to_all, block_until_ready, device_put, jit, pad, shard_map
from weft.ops._replicas import AXIS, broadcast, folded, reduced

Body = Callable[..., jax.Array]

_LONGEST_LEAVE = 60.0  # seconds for which rank 0, the coordinator, waits for the others when it ends


class XlaBackend(GroupBackend):
    """Collectives by XLA. XLA determines the order of sums, which is the same on all ranks and in each run."""

    name = "xla"
    one_order = True

    def __init__(self, store: Store, links: TcpStreams, rank: int, ranks: Sequence[int], timeout: timedelta) -> None:
        super().__init__(rank, len(ranks), timeout)
        self.store: Store = store
        self.message_group = MessageGroup(links, rank, len(ranks), ranks)
        devices = {device.process_index: device for device in reversed(jax.devices())}
        self.device = devices[ranks[rank]]
        self.mesh = Mesh(np.array([devices[one] for one in ranks]), (AXIS,))
        self._split = NamedSharding(self.mesh, PartitionSpec(AXIS))
        self._before = replication()
        if len(ranks) == jax.process_count():
            set_replication(self)

    def _call(self, call: CollectiveCall, x: Array, body: Body, *static: Arg) -> Array:
        """This rank's result of `body`, which runs on all ranks, for its array `x`."""
        deadline = self.deadline()
        return self.message_group.run(call, lambda: self._exchange(call, deadline, x, body, *static), deadline)

    def _exchange(self, call: CollectiveCall, deadline: Deadline, x: Array, body: Body, *static: Arg) -> Array:
        mine = device_put(x, self.device) if x.ndim else device_put(x, self.device).reshape(1)
        shape = (self.size * mine.shape[0], *mine.shape[1:])  # each rank has a part along the first dim
        whole = jax.make_array_from_single_device_arrays(shape, self._split, [mine])
        every = _program(self.mesh, body, *static)(whole)
        self._complete([every], call, deadline)
        result = every.addressable_data(0)
        if not every.size:  # an empty array is not sharded
            result = result.reshape(every.shape[0] // self.size, *every.shape[1:])
        if not x.ndim:
            result = result.reshape(result.shape[:-1])
        return device_put(result, x.sharding) if isinstance(x, jax.Array) else result

    def _complete(self, results: Sequence[jax.Array], call: object, deadline: Deadline) -> None:
        """Wait until XLA has computed the results, or a rank fails."""
        for result in results:
            try:
                self.message_group.complete(partial(is_ready, result), call, deadline)
            except BaseException:
                unfinished.extend(results)
                raise
        try:
            block_until_ready(results)
        except (ValueError, JaxRuntimeError) as error:
            self.message_group.fail_after(error, call)

    def run_together(
        self, what: str, program: str, launch: Callable[[], Sequence[jax.Array]]
    ) -> Sequence[jax.Array] | None:
        """The computed results of `launch()`, which is called once all ranks have come with this text and program.

        None if only the programs differ.
        """
        deadline = self.deadline()

        def steps() -> Sequence[jax.Array]:
            results = launch()
            self._complete(results, what, deadline)
            return results

        return self.in_order(lambda: self.message_group.run_if_equal(what, program, steps, deadline))

    def all_reduce(self, x: Array, op: Reduction) -> Array:
        return self._reduced(CollectiveCall("all_reduce", x.size, x.dtype, None, word_of(op)), x, op)

    def all_reduce_many(self, xs: Sequence[Array], op: Reduction) -> Sequence[Array]:
        if len({x.dtype for x in xs}) > 1:
            return super().all_reduce_many(xs, op)
        whole = self.all_reduce(jnp.concatenate([jnp.ravel(x) for x in xs]), op)
        parts = jnp.split(whole, np.cumsum([x.size for x in xs])[:-1])
        return [part.reshape(x.shape) for part, x in zip(parts, xs, strict=True)]

    def reduce(self, x: Array, root: int, op: Reduction) -> Array:
        result = self._reduced(CollectiveCall("reduce", x.size, x.dtype, root, word_of(op)), x, op)
        return result if root == self.rank else x

    def _reduced(self, call: CollectiveCall, x: Array, op: Reduction) -> Array:
        check_reduction(word_of(op), np.dtype(x.dtype))
        return self._call(call, _multiplied(x, op), reduced, word_of(op))

    def broadcast(self, x: Array, root: int) -> Array:
        return self._call(CollectiveCall("broadcast", x.size, x.dtype, root), x, broadcast, root)

    def all_gather(self, x: Array) -> list[Array]:
        return list(self._call(CollectiveCall("all_gather", x.size, x.dtype), x, _gather))

    def gather(self, x: Array, root: int) -> list[Array] | None:
        parts = self._call(CollectiveCall("gather", x.size, x.dtype, root), x, _gather)
        return list(parts) if root == self.rank else None

    def scatter(self, xs: Sequence[Array] | None, like: Array, root: int) -> Array:
        parts = jnp.zeros((self.size, *like.shape), like.dtype) if xs is None else jnp.stack(xs)
        return self._call(CollectiveCall("scatter", like.size, like.dtype, root), parts, _exchange_parts)[root]

    def reduce_scatter(self, xs: Sequence[Array], op: Reduction) -> Array:
        word, x = word_of(op), xs[self.rank]
        check_reduction(word, np.dtype(x.dtype))
        call = CollectiveCall("reduce_scatter", x.size, x.dtype, None, word)
        return self._call(call, jnp.stack([_multiplied(x, op) for x in xs]), _reduce_parts, word)

    def all_to_all(self, xs: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        sizes = [int(np.prod(shape)) for shape in shapes]
        call, deadline = CollectiveCall("all_to_all", 0, xs[0].dtype), self.deadline()

        def steps() -> Array:
            counts = np.array([x.size for x in xs] + sizes, np.int64)
            table = np.asarray(self._exchange(call, deadline, counts, _gather))
            if (mismatch := size_mismatch(table, self.message_group.ranks)) is not None:
                raise CollectiveArgumentsError(mismatch)
            longest = int(table.max())
            padded = jnp.stack([pad(jnp.ravel(x), (0, longest - x.size)) for x in xs])
            return self._exchange(call, deadline, padded, _exchange_parts)

        parts_of_ranks = self.message_group.run(call, steps, deadline)
        return [part[:size].reshape(shape) for part, size, shape in zip(parts_of_ranks, sizes, shapes, strict=True)]

    def barrier(self, timeout: timedelta | None = None, operation: str = "barrier") -> None:
        self.message_group.run(CollectiveCall(operation), lambda: None, self.deadline(timeout))

    def send(self, x: Array, peer: int, tag: int) -> _XlaMessage:
        return _XlaMessage(self, self.message_group.messages.send(np.asarray(x), peer, tag), None, x)

    def receive(self, like: Array, peer: int | None, tag: int) -> _XlaMessage:
        out = np.empty(like.shape, like.dtype)
        return _XlaMessage(self, self.message_group.messages.receive(out, peer, tag), out, like)

    def abort(self, text: str) -> None:
        self.message_group.abort(text)

    def close(self) -> None:
        if replication() is self:
            set_replication(self._before)
        self.message_group.close()


class _XlaMessage:
    """A send or receive in an XLA group; `like` has the sharding for the received array."""

    def __init__(self, backend: XlaBackend, request: MessageRequest, received: np.ndarray | None, like: Array) -> None:
        self._backend = backend
        self._request = request
        self._received = received
        self._like = like

    @property
    def done(self) -> bool:
        if not self._request.done:
            self._backend.message_group.messages.progress()
        return self._request.done

    def wait(self) -> tuple[list[Array], int]:
        self._backend.message_group.messages.wait(self._request, self._backend.deadline())
        assert self._request.peer is not None, "a message that has come has a source"
        target = self._like.sharding if isinstance(self._like, jax.Array) else self._backend.device
        received: list[Array] = [] if self._received is None else [device_put(self._received, target)]
        return received, self._request.peer


# --- what all ranks run: from a rank's array to its result ---------------------------------------------------------


@lru_cache(maxsize=1024)  # key: the ranks' devices, the body, and its constants
def _program(mesh: Mesh, body: Body, *static: Arg) -> Callable[[jax.Array], jax.Array]:
    spec = PartitionSpec(AXIS)

    def run(x: jax.Array) -> jax.Array:
        return body(x, *static)

    sharded = shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return jit(sharded, compiler_options=KEEP_CASTS)


def _gather(x: jax.Array) -> jax.Array:
    """(…) -> (ranks, …)"""
    return all_gather(x, AXIS)


def _exchange_parts(x: jax.Array) -> jax.Array:
    """(target ranks, …) -> (source ranks, …)"""
    return all_to_all(x, AXIS, 0, 0)


def _reduce_parts(x: jax.Array, word: str) -> jax.Array:
    """(target ranks, …) -> (…)"""
    return folded(_exchange_parts(x), word)


def _multiplied(x: Array, op: Reduction) -> Array:
    return (x * op.factor).astype(x.dtype) if isinstance(op, PremulSum) else x


# --- joining ----------------------------------------------------------------------------------------------------


@dataclass
class _Runtime:
    """This process's part of XLA's distributed runtime. It joins once, and stays until it ends."""

    process: str = field(default_factory=lambda: secrets.token_hex(8))
    token: str = ""  # equal in all processes of the runtime
    tunnel: TunnelServer | Tunnel | None = None
    with_gloo: bool = True


# no cell: set once, when the process joins a job
_runtime = _Runtime()


def _enter_runtime(store: Store, rank: int, ranks: Sequence[int], seconds: float) -> None:
    """Join the runtime with all ranks of the job, or check that this has been done."""
    if in_runtime() is not None and not _runtime.token:
        _runtime.token = "joined by the user"
    place = location(host_of(store))
    entry = [_runtime.process, _runtime.token, address_of_own_name(), place["network"], place["addresses"]]
    store.set(keys.runtime(rank), json.dumps(entry))
    entries = map(json.loads, store.multi_get([keys.runtime(peer) for peer in range(len(ranks))]))
    processes, tokens, names, networks, addresses = zip(*entries, strict=True)
    if len(set(processes)) < len(ranks):
        raise DistBackendError(
            "the ranks of backend xla are processes; use backend 'threads' for threads of one process"
        )
    if len(set(tokens)) > 1:
        other = next(peer for peer, token in enumerate(tokens) if token != tokens[rank])
        raise DistBackendError(
            f"backend xla: ranks {ranks[rank]} and {ranks[other]} belong to different jobs of XLA's runtime, which a "
            "process joins only once; start all processes anew"
        )
    if not _runtime.token:
        # XLA's Gloo listens at the address of its host's name alone, which the other hosts may not reach.
        is_one_network = len(set(networks)) == 1
        _runtime.with_gloo = all(
            name is not None and (is_one_network or name in reached)
            for name, reached in zip(names, addresses, strict=True)
        )
        _join_runtime(store, rank, len(ranks), seconds)
    joined = in_runtime()
    if joined is None or joined[0] != ranks[rank] or joined[1] <= max(ranks):
        raise DistBackendError(
            f"backend xla: this process is rank {ranks[rank]} of the job, and in XLA's runtime {joined}; a process "
            "keeps its rank there as long as it lives; start all processes anew"
        )


def _join_runtime(store: Store, rank: int, size: int, seconds: float) -> None:
    if rank == 0:
        token = secrets.token_hex(16)
        tunnel = server = TunnelServer(token)
        endpoint = {"location": location(host_of(store)), "port": server.port, "token": token}
        store.set(keys.COORDINATOR, json.dumps(endpoint))
        atexit.register(server.close, min(seconds, _LONGEST_LEAVE))
    else:
        endpoint = json.loads(store.get(keys.COORDINATOR))
        token = endpoint["token"]
        addresses = addresses_of(endpoint["location"], host_of(store))
        tunnel = Tunnel(addresses, endpoint["port"], token, seconds)
    join_runtime(tunnel.path, rank, size, seconds, with_gloo=_runtime.with_gloo)
    _runtime.token, _runtime.tunnel = token, tunnel


def join(store: Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> GroupBackend:
    """The backend `xla`: processes on any hosts, with one device each.

    On CPUs whose hosts do not reach each other by their names, arrays are sent over the ranks' own connections.
    """
    _enter_runtime(store, rank, ranks, timeout.total_seconds())
    links = connect(store, rank, len(ranks), Deadline(timeout.total_seconds()), ranks=ranks)
    if not _runtime.with_gloo and jax.default_backend() == "cpu":
        return over_streams("xla", links, rank, ranks, timeout)
    return XlaBackend(store, links, rank, ranks, timeout)


def join_accelerators(store: Store, rank: int, ranks: Sequence[int], timeout: timedelta) -> GroupBackend:
    """The backend `nccl`: `xla`, restricted to accelerators."""
    backend = join(store, rank, ranks, timeout)
    if jax.default_backend() == "cpu":
        backend.close()
        raise DistError("backend nccl is for accelerators, and this process has none; use 'xla', or 'gloo' on CPUs")
    backend.name = "nccl"
    return backend
