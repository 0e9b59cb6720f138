"""How a worker of the default backend joins the job."""

from __future__ import annotations

import os

from weft._comm.store import Store
from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._backward import GradientControls
from weft.distributed.rpc._devices import Own, complaint, own_of
from weft.distributed.rpc._farewell import Farewell
from weft.distributed.rpc._place import LOOPBACK, Ways
from weft.distributed.rpc._rref import ReferenceControls
from weft.distributed.rpc._state import here
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.distributed.rpc.options import TensorPipeRpcBackendOptions
from weft.errors import DistStoreError, RpcError, ValueRangeError

_ADDRESS = "WEFT_RPC_HOST"
"""By which address workers of other hosts reach this one."""

_HAS_DEVICES = "has devices"  # in the store, where any worker has named some


class Controls(ReferenceControls, GradientControls, Farewell):
    """What peers may have a worker do at once."""

    def __init__(self, agent: Agent) -> None:
        ReferenceControls.__init__(self, agent)
        GradientControls.__init__(self, agent)
        Farewell.__init__(self, agent)


def joined(store: Store, name: str, rank: int, world_size: int | None, options: TensorPipeRpcBackendOptions) -> Agent:
    """The agent of this process, once all workers are there; without a world size it waits for nobody."""
    ways = Ways(os.environ.get(_ADDRESS, LOOPBACK), options.near, options.certificates)
    workers = Workers(store, WorkerInfo(name, store.add("next", 1) - 1 if rank < 0 else rank), ways)
    agent = Agent(
        workers,
        threads=options.num_worker_threads,
        seconds=options.rpc_timeout,
        ways=ways,
        size=world_size,
        device_maps=options.device_maps,
        controls=Controls,
    )
    here.agent = agent  # others may call as soon as they know of it
    own = Own(options.devices, options.device_maps)
    try:
        workers.enter({**agent.peers.place.record, **own.told()})
        if own.named or own.maps:
            store.set(_HAS_DEVICES, "1")
        if world_size is not None:
            _wait_for_all(store, workers.me, world_size)
            if store.check([_HAS_DEVICES]):
                _compare_devices(store, workers, world_size)
    except BaseException:
        here.agent = None
        agent.close()
        raise
    return agent


def _compare_devices(store: Store, workers: Workers, size: int) -> None:
    """`ValueError` on all workers where the devices or maps of one are wrong."""
    records = {peer.name: workers.place(peer) for peer in map(workers.find, range(size)) if peer is not None}
    found = complaint(workers.me.name, {name: own_of(record) for name, record in records.items() if record is not None})
    store.set(f"devices/{workers.me.id}", found)
    keys = [f"devices/{peer}" for peer in range(size)]
    store.wait(keys)
    for key in keys:
        if found := store.get(key).decode():
            raise ValueRangeError(found)


def _wait_for_all(store: Store, me: WorkerInfo, size: int) -> None:
    if store.add("joined", 1) == size:
        store.set("all", "1")
    try:
        store.wait(["all"])
    except DistStoreError as error:
        missing = [str(peer) for peer in range(size) if not store.check([f"id/{peer}"])]
        raise RpcError(
            f"init_rpc: {me} waited {store.timeout.total_seconds():g} s for worker {', '.join(missing)} of {size}; "
            "look whether they were started, reached the same address, and expect as many workers"
        ) from error
