"""How a worker of the default backend joins the job."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import NoReturn

from weft._base.device import device as Device
from weft._comm.stores.store import Store, is_of_threads
from weft.distributed._world import rank_entrance
from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._controls import CONTROLS
from weft.distributed.rpc._devices import Own, complaint, devices_of, own_of
from weft.distributed.rpc._listener import LOOPBACK, ConnectOptions, Endpoint
from weft.distributed.rpc._state import entrance, here
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.distributed.rpc.options import TensorPipeRpcBackendOptions
from weft.errors import DistError, DistStoreError, JobKeyError, RpcError, ValueRangeError

_ADDRESS = "WEFT_RPC_HOST"
"""By which address workers of other hosts reach this one."""

_STORE_SECONDS = timedelta(seconds=10)
"""How long the store may take to answer once a worker has joined."""

_LEAVE_SECONDS = timedelta(seconds=5)  # for which who may keep the store stays until the others have been told
_ALL = "1"  # that all workers have come, where else is said why they cannot
_COME, _LEFT = "all/id", "left"  # in the store: that, and that nobody waits any more

_HAS_DEVICES = "has devices"  # in the store, where any worker has named some


def joined(store: Store, name: str, rank: int, world_size: int | None, options: TensorPipeRpcBackendOptions) -> Agent:
    """The agent of this process, once all workers are there; without a world size it waits for nobody."""
    connecting = _connect_options(store, options)
    number = _free_number(store) if rank < 0 else rank
    workers = Workers(store, WorkerInfo(name, number, store.add(f"incarnations/{number}", 1) - 1), connecting)
    agent = Agent(
        workers,
        threads=options.num_worker_threads,
        seconds=options.rpc_timeout,
        connecting=connecting,
        size=world_size,
        device_maps=options.device_maps,
        controls=CONTROLS,
        enter=_entrance(),
    )
    here().agent = agent  # others may call as soon as they know of it
    own = Own(options.named, options.device_maps)
    alone = {**dict.fromkeys(own.maps, Own()), name: own}  # those that the maps name may still come
    try:
        if world_size is None and (wrong := complaint(name, alone)):
            raise ValueRangeError(wrong)
        _enter(workers, {**agent.peers.listener.endpoint, **own.told()}, world_size)
        if own.named or own.maps:
            store.set(_HAS_DEVICES, "1")
        if world_size is None:
            options.found = devices_of(name, alone)
        else:
            if (said := _meet(store, workers.me, world_size, "id")) != _ALL:
                _leave(workers, said)
            workers.settle(world_size)
            if store.check([_HAS_DEVICES]):
                options.found = _compared_devices(store, workers, world_size)
    except BaseException:
        here().agent = None
        agent.close()
        raise
    if not connecting.in_memory:  # else it is the others' store as well
        store.set_timeout(_STORE_SECONDS)
    return agent


def _connect_options(store: Store, options: TensorPipeRpcBackendOptions) -> ConnectOptions:
    address = os.environ.get(_ADDRESS) or LOOPBACK
    return ConnectOptions(address, options.unix_sockets, options.certificates, is_of_threads(store))


def _entrance() -> Callable[[], None]:
    """What makes threads of the agent belong to this thread's rank."""
    enter_rank, enter_job = rank_entrance(), entrance()

    def enter() -> None:
        enter_rank()
        enter_job()

    return enter


def _enter(workers: Workers, endpoint: Endpoint, size: int | None) -> None:
    """Tell where this worker listens. Why it may not come is left to those who wait for it."""
    try:
        workers.enter(endpoint)
        if size is not None:
            _agree(workers, size)
    except (RpcError, JobKeyError) as error:
        if size is not None:
            reason = f"{workers.me} could not join: {error}"
            if workers.store.compare_set(_COME, "", reason).decode() == reason and workers.store.add("met/id", 0):
                _let_go(workers.store)
        raise


def _agree(workers: Workers, size: int) -> None:
    """Require that all expect as many workers, and have the same key, as the first of them has said.

    Where that differs, and it has died since, this one is the first.
    """
    mine = f"{size} {workers.key} {workers.me.name}"
    first = workers.store.compare_set("size", "", mine).decode()
    number, key, name = first.split(maxsplit=2)
    if mine.startswith(f"{number} {key} "):
        return
    try:
        if not workers.lives(name):
            workers.store.set("size", mine)
        elif int(number) != size:
            raise RpcError(f"world_size is {size} here, and {number} at worker {name}; give all workers the same")
    except (RpcError, JobKeyError):
        workers.leave()
        raise


def _let_go(store: Store) -> None:
    """Give those who wait the time to be told: they may need the store of this process."""
    with suppress(DistError):
        store.wait([_LEFT], _LEAVE_SECONDS)


def _leave(workers: Workers, reason: str) -> NoReturn:
    """Give up waiting, as somebody cannot come. The last one leaves the store as if nobody had been there."""
    store = workers.store
    with suppress(DistError):
        workers.leave()
        if store.add("met/id", -1) == 0:
            for key in (_COME, "size"):
                store.delete_key(key)
            store.set(_LEFT, "1")
        _let_go(store)
    raise RpcError(f"init_rpc: {workers.me} waited in vain: {reason}")


def _free_number(store: Store) -> int:
    """A number that no worker has had."""
    while store.check([f"incarnations/{(number := store.add('next', 1) - 1)}"]):
        pass
    return number


def _compared_devices(store: Store, workers: Workers, size: int) -> list[Device]:
    """This worker's devices by all maps; `ValueError` on all workers where the devices or maps of one are wrong."""
    me = workers.me
    endpoints = {peer.name: workers.endpoint(peer) for peer in map(workers.find, range(size)) if peer is not None}
    everybody = {name: own_of(endpoint) for name, endpoint in endpoints.items() if endpoint is not None}
    store.set(f"devices/{me.id}", complaint(me.name, everybody))
    _meet(store, me, size, "devices")
    for peer in range(size):
        if found := store.get(f"devices/{peer}").decode():
            store.set(f"told/{me.id}", "1")
            with suppress(DistError):  # who keeps the store ends when all have been told
                _meet(store, me, size, "told")
            raise ValueRangeError(found)
    return devices_of(me.name, everybody)


def _meet(store: Store, me: WorkerInfo, size: int, key: str) -> str:
    """Wait until all workers have come here, each of which has set KEY/NUMBER before, or until one says why not."""
    if store.add(f"met/{key}", 1) == size:
        store.compare_set(f"all/{key}", "", _ALL)
    try:
        return store.get(f"all/{key}").decode()
    except DistStoreError as error:
        missing = [str(peer) for peer in range(size) if not store.check([f"{key}/{peer}"])]
        raise RpcError(
            f"init_rpc: {me} waited {store.timeout.total_seconds():g} s for worker {', '.join(missing)} of {size}; "
            "look whether they were started, reached the same address, and expect as many workers"
        ) from error
