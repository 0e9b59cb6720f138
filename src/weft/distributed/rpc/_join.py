"""How a worker of the default backend joins the job."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import NoReturn

from weft._base.device import device as Device
from weft._comm.stores.store import Store, is_of_threads
from weft.distributed._world import rank_setter
from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._controls import CONTROLS
from weft.distributed.rpc._devices import WorkerDevices, device_error, devices_from_endpoint, devices_of
from weft.distributed.rpc._listener import LOOPBACK, ConnectOptions, Endpoint
from weft.distributed.rpc._state import here, state_setter
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.distributed.rpc.options import TensorPipeRpcBackendOptions
from weft.errors import DistError, DistStoreError, JobKeyError, RpcError, ValueRangeError

_ADDRESS = "WEFT_RPC_HOST"
"""The environment variable with the address by which workers on other hosts reach this one."""

_STORE_SECONDS = timedelta(seconds=10)
"""How long the store may take to answer after a worker has joined."""

_LEAVE_SECONDS = timedelta(
    seconds=5
)  # for which a worker, which may serve the store, waits until the others know why it leaves
_ALL = "1"  # the value that means: all have joined; any other value is the reason why they cannot
_ALL_JOINED, _DEPARTED = (
    "all/id",
    "left",
)  # keys of the store: why or that all have joined; that all waiting workers have left

_HAS_DEVICES = "has devices"  # a key that exists if any worker has named devices


def join(store: Store, name: str, rank: int, world_size: int | None, options: TensorPipeRpcBackendOptions) -> Agent:
    """The agent of this process, once all workers have joined; without a world size it does not wait for them."""
    connect_options = _connect_options(store, options)
    number = _free_number(store) if rank < 0 else rank
    workers = Workers(store, WorkerInfo(name, number, store.add(f"incarnations/{number}", 1) - 1), connect_options)
    agent = Agent(
        workers,
        threads=options.num_worker_threads,
        seconds=options.rpc_timeout,
        connect_options=connect_options,
        size=world_size,
        device_maps=options.device_maps,
        controls=CONTROLS,
        enter=_thread_setup(),
    )
    here().agent = agent  # other workers may call as soon as they know of it
    own = WorkerDevices(options.named, options.device_maps)
    alone = {**dict.fromkeys(own.maps, WorkerDevices()), name: own}  # workers named in the maps may join later
    try:
        if world_size is None and (wrong := device_error(name, alone)):
            raise ValueRangeError(wrong)
        _register(workers, {**agent.peers.listener.endpoint, **own.as_text()}, world_size)
        if own.named or own.maps:
            store.set(_HAS_DEVICES, "1")
        if world_size is None:
            options.resolved_devices = devices_of(name, alone)
        else:
            if (outcome := _await_all(store, workers.me, world_size, "id")) != _ALL:
                _give_up(workers, outcome)
            workers.all_joined(world_size)
            if store.check([_HAS_DEVICES]):
                options.resolved_devices = _agreed_devices(store, workers, world_size)
    except BaseException:
        here().agent = None
        agent.close()
        raise
    if not connect_options.in_memory:  # otherwise the other workers use the same store object
        store.set_timeout(_STORE_SECONDS)
    return agent


def _connect_options(store: Store, options: TensorPipeRpcBackendOptions) -> ConnectOptions:
    address = os.environ.get(_ADDRESS) or LOOPBACK
    return ConnectOptions(address, options.unix_sockets, options.certificates, is_of_threads(store))


def _thread_setup() -> Callable[[], None]:
    """A function by which another thread can take on the rank of this one."""
    enter_rank, enter_job = rank_setter(), state_setter()

    def enter() -> None:
        enter_rank()
        enter_job()

    return enter


def _register(workers: Workers, endpoint: Endpoint, size: int | None) -> None:
    """Publish this worker's endpoint. If that is refused, also publish the reason, for the workers that wait."""
    try:
        workers.register(endpoint)
        if size is not None:
            _check_agreement(workers, size)
    except (RpcError, JobKeyError) as error:
        if size is not None:
            reason = f"{workers.me} could not join: {error}"
            if workers.store.compare_set(_ALL_JOINED, "", reason).decode() == reason and workers.store.add("met/id", 0):
                _await_departure(workers.store)
        raise


def _check_agreement(workers: Workers, size: int) -> None:
    """Require that all workers have the world size and key that the first of them has published.

    If they differ, and the first worker has died since, this one takes its place.
    """
    mine = f"{size} {workers.key} {workers.me.name}"
    first = workers.store.compare_set("size", "", mine).decode()
    number, key, name = first.split(maxsplit=2)
    if mine.startswith(f"{number} {key} "):
        return
    try:
        if not workers.is_alive(name):
            workers.store.set("size", mine)
        elif int(number) != size:
            raise RpcError(f"world_size is {size} here, and {number} at worker {name}; give all workers the same")
    except (RpcError, JobKeyError):
        workers.leave()
        raise


def _await_departure(store: Store) -> None:
    """Wait until the others have read the reason, since they may need this process's store."""
    with suppress(DistError):
        store.wait([_DEPARTED], _LEAVE_SECONDS)


def _give_up(workers: Workers, reason: str) -> NoReturn:
    """Leave because a worker cannot join. The last one clears the store for another attempt."""
    store = workers.store
    with suppress(DistError):
        workers.leave()
        if store.add("met/id", -1) == 0:
            for key in (_ALL_JOINED, "size"):
                store.delete_key(key)
            store.set(_DEPARTED, "1")
        _await_departure(store)
    raise RpcError(f"init_rpc: {workers.me} waited in vain: {reason}")


def _free_number(store: Store) -> int:
    """A number that no worker has had yet."""
    while store.check([f"incarnations/{(number := store.add('next', 1) - 1)}"]):
        pass
    return number


def _agreed_devices(store: Store, workers: Workers, size: int) -> list[Device]:
    """This worker's devices, from all maps; `ValueError` on all workers if the devices or maps of one are wrong."""
    me = workers.me
    endpoints = {peer.name: workers.endpoint(peer) for peer in map(workers.find, range(size)) if peer is not None}
    everybody = {name: devices_from_endpoint(endpoint) for name, endpoint in endpoints.items() if endpoint is not None}
    store.set(f"devices/{me.id}", device_error(me.name, everybody))
    _await_all(store, me, size, "devices")
    for peer in range(size):
        if error := store.get(f"devices/{peer}").decode():
            store.set(f"told/{me.id}", "1")
            with suppress(DistError):  # the store's worker may end once all have read this
                _await_all(store, me, size, "told")
            raise ValueRangeError(error)
    return devices_of(me.name, everybody)


def _await_all(store: Store, me: WorkerInfo, size: int, key: str) -> str:
    """Wait until all workers have called this, or one has published why it cannot. Each must have set KEY/NUMBER."""
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
