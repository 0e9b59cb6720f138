"""How a worker of the default backend joins the job."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from weft._base.device import device as Device
from weft._comm.stores import keys
from weft._comm.stores.meeting import Meeting
from weft._comm.stores.store import PrefixStore, Store, is_of_threads
from weft.distributed._world import rank_setter
from weft.distributed.rpc._agent import Agent
from weft.distributed.rpc._controls import CONTROLS
from weft.distributed.rpc._devices import WorkerDevices, device_error, devices_from_endpoint, devices_of
from weft.distributed.rpc._listener import LOOPBACK, ConnectOptions
from weft.distributed.rpc._state import here, state_setter
from weft.distributed.rpc._workers import WorkerInfo, Workers
from weft.distributed.rpc.options import TensorPipeRpcBackendOptions
from weft.errors import DistError, JobKeyError, RpcError, ValueRangeError

_ADDRESS = "WEFT_RPC_HOST"
"""The environment variable with the address by which workers on other hosts reach this one."""

_STORE_SECONDS = timedelta(seconds=10)
"""How long the store may take to answer after a worker has joined."""


def join(store: Store, name: str, rank: int, world_size: int | None, options: TensorPipeRpcBackendOptions) -> Agent:
    """The agent of this process, once all workers have joined; without a world size it does not wait for them."""
    if world_size is None:
        store.set(keys.LATEST, keys.RPC_ANY)
        part = PrefixStore(keys.RPC_ANY, store)
        return _join(part, name, _free_number(part) if rank < 0 else rank, None, options)
    with Meeting(store, rank, world_size, "init_rpc", RpcError) as meeting:
        store.set(keys.LATEST, meeting.name)
        return _join(meeting.store, name, rank, meeting, options)


def _join(store: Store, name: str, number: int, meeting: Meeting | None, options: TensorPipeRpcBackendOptions) -> Agent:
    """The agent of the worker with this number, once those that come to the meeting have joined."""
    connect_options = _connect_options(store, options)
    workers = Workers(store, WorkerInfo(name, number, store.add(keys.incarnation(number), 1) - 1), connect_options)
    agent = Agent(
        workers,
        threads=options.num_worker_threads,
        seconds=options.rpc_timeout,
        connect_options=connect_options,
        size=None if meeting is None else meeting.size,
        device_maps=options.device_maps,
        controls=CONTROLS,
        enter=_thread_setup(),
    )
    here().agent = agent  # other workers may call as soon as they know of it
    own = WorkerDevices(options.named, options.device_maps)
    alone = {**dict.fromkeys(own.maps, WorkerDevices()), name: own}  # workers named in the maps may join later
    try:
        # Nobody else joins at the same time who could agree on the error, so it is raised before others can see this
        # worker.
        if meeting is None and (wrong := device_error(name, alone)):
            raise ValueRangeError(wrong)
        workers.register({**agent.peers.listener.endpoint, **own.as_text()})
        if own.named or own.maps:
            store.set(keys.HAS_DEVICES, "1")
        if meeting is None:
            options.resolved_devices = devices_of(name, alone)
        else:
            _require_one_key(workers, meeting.wait(workers.key, store.timeout))
            workers.all_joined(meeting.size)
            if store.check([keys.HAS_DEVICES]):
                options.resolved_devices = _agreed_devices(store, workers, meeting.size)
    # An entry that stays would refuse this name to the next attempt, and have others wait for a worker that has gone.
    except BaseException:
        here().agent = None
        if workers.registered:
            with suppress(DistError):
                workers.leave()
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


def _require_one_key(workers: Workers, all_keys: Sequence[bytes]) -> None:
    for number, key in enumerate(all_keys):
        if key.decode() != workers.key:
            raise JobKeyError(
                f"init_rpc: {workers.me} and worker {number} have different keys; give all processes of a job the same "
                "WEFT_JOB_KEY"
            )


def _free_number(store: Store) -> int:
    """A number that no worker has had yet."""
    # Numbers may also be given by hand, so one that is drawn may have been taken.
    while store.check([keys.incarnation(number := store.add(keys.NEXT_NUMBER, 1) - 1)]):
        pass
    return number


def _agreed_devices(store: Store, workers: Workers, size: int) -> list[Device]:
    """This worker's devices, from all maps; `ValueError` on all workers if the devices or maps of one are wrong."""
    me = workers.me
    endpoints = {peer.name: workers.endpoint(peer) for peer in map(workers.find, range(size)) if peer is not None}
    everybody = {name: devices_from_endpoint(endpoint) for name, endpoint in endpoints.items() if endpoint is not None}
    store.set(keys.devices(me.id), device_error(me.name, everybody))
    # All raise the error of the first worker that has one; if only that one failed, the others would call into a job
    # that lacks it.
    for error in store.multi_get([keys.devices(peer) for peer in range(size)]):
        if error:
            store.set(keys.knows_devices(me.id), "1")
            with suppress(DistError):  # the store's worker may end once all have read this
                store.wait([keys.knows_devices(peer) for peer in range(size)])
            raise ValueRangeError(error.decode())
    return devices_of(me.name, everybody)
