"""Device maps: what is refused when they are set and when workers join, and where tensors go."""

from __future__ import annotations

import sys

import pytest

from tests.distributed.processes import ended, start
from tests.distributed.rpc import devices, job
from weft import device
from weft.distributed import rpc
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.distributed.rpc._devices import WorkerDevices, device_error, devices_of

Options = rpc.TensorPipeRpcBackendOptions


def test_maps_are_one_to_one():
    with pytest.raises(
        ValueError, match=r"^`device_map` only supports 1-to-1 mapping, trying to map xla:1 and xla:0 to xla:1$"
    ):
        Options(device_maps={"worker1": {0: 1, 1: 1}})
    options = Options(device_maps={"worker1": {"cuda:0": "cuda:1"}})
    with pytest.raises(
        ValueError, match=r"^`set_device_map` only supports 1-to-1 mapping, trying to map cuda:0 to cuda:2 and cuda:1$"
    ):
        options.set_device_map("worker1", {"cuda:0": "cuda:2"})
    with pytest.raises(
        ValueError, match=r"^`set_device_map` only supports 1-to-1 mapping, trying to map cuda:3 and cuda:0 to cuda:1$"
    ):
        options.set_device_map("worker1", {"cuda:3": "cuda:1"})
    assert options.device_maps == {"worker1": {device("cuda:0"): device("cuda:1")}}  # nothing of what was refused
    options.set_device_map("worker1", {"cuda:1": device("cuda:0"), "cuda:0": "cuda:1"})
    options.set_device_map("worker2", {0: 1})
    assert options.device_maps == {
        "worker1": {device("cuda:0"): device("cuda:1"), device("cuda:1"): device("cuda:0")},
        "worker2": {device("xla:0"): device("xla:1")},
    }


def test_devices_are_accelerators():
    options = Options()
    assert (options.device_maps, options.devices) == ({}, [])
    with pytest.raises(ValueError, match=r"^`set_devices` expect a list of CUDA devices, but got device type cpu\."):
        options.set_devices([0, "cpu"])
    assert options.devices == []
    options.set_devices([1, "cuda:0"])
    assert options.devices == Options(devices=[1, "cuda:0"]).devices == [device("xla:1"), device("cuda:0")]
    with pytest.raises(RuntimeError, match="Expected one of cpu"):
        options.set_devices(["gnu:1"])


def own(devices=(), **maps):
    found = Options(devices=devices)
    for to, one in maps.items():
        found.set_device_map(to, one)
    return WorkerDevices(found.named, found.device_maps)


@pytest.mark.parametrize(
    ("workers", "told"),
    [
        ({"a": own([0, 0])}, "Node a has duplicated devices\ndevices = xla:0, xla:0"),
        ({"a": own([0, 99])}, "Node a has devices with invalid indices\ndevices = xla:0, xla:99\nxla:99: "),
        (
            {"a": own(b={0: 0}), "c": own()},
            "Node a has invalid target node names in its device maps\ndevice maps = b\nnode names = a, c",
        ),
        (
            {"a": own([0], b={1: 0}), "b": own()},
            "Node a has unexpected source devices in its device map for b\n"
            "device map = xla:1 to xla:0\ndevices = xla:0",
        ),
        (
            {"a": own(b={99: 0}), "b": own()},
            "Node a has source devices with invalid indices in its device map for b\n"
            "device map = xla:99 to xla:0\nxla:99: ",
        ),
        (
            {"a": own(b={0: 1}), "b": own([0])},
            "Node a has unexpected target devices in its device map for b\n"
            "device map = xla:0 to xla:1\ndevices = xla:0",
        ),
        (
            {"a": own(), "b": own(a={0: 99})},
            "Node b has target devices with invalid indices in its device map for a\n"
            "device map = xla:0 to xla:99\nxla:99: ",
        ),
        ({"a": own([0], b={0: 0, "cpu": "cpu"}), "b": own([0], a={0: 0})}, ""),
    ],
)
def test_what_is_wrong_is_told(workers, told):
    found = device_error("a", workers)
    assert found.startswith(told) if told else not found


def test_devices_are_those_of_all_maps():
    workers = {"a": own(b={3: 0, "cpu": 1}), "b": own(a={0: 2, 1: 3, 2: "cpu"}), "c": own(b={4: 5})}
    assert [str(one) for one in devices_of("a", workers)] == ["xla:2", "xla:3"]
    assert [str(one) for one in devices_of("b", workers)] == ["xla:0", "xla:1", "xla:2", "xla:5"]


FOUR_DEVICES = "--xla_force_host_platform_device_count=4"


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    yield from job.shared("tests.distributed.rpc.devices", 3, tmp_path_factory, XLA_FLAGS=FOUR_DEVICES)


@job.each(*devices.case)
def test_tensors_go_where_the_maps_say(case, workers):
    workers.run(case)


_JOINING = """
import sys
from weft.distributed import rpc
rank, first, second, device_map = sys.argv[1:]
options = rpc.TensorPipeRpcBackendOptions(init_method=first)
options.set_device_map("w1", eval(device_map))
try:
    rpc.init_rpc(f"w{rank}", rank=int(rank), world_size=2, rpc_backend_options=options)
except ValueError as error:
    print(str(error).splitlines()[0])
    options = rpc.TensorPipeRpcBackendOptions(init_method=second)
    rpc.init_rpc(f"w{rank}", rank=int(rank), world_size=2, rpc_backend_options=options)
    print(rpc.rpc_sync(f"w{1 - int(rank)}", abs, (-3,)))
    rpc.shutdown()
"""


def test_all_workers_are_told_and_may_join_again(tmp_path):
    places = f"tcp://127.0.0.1:{free_port()}", f"file://{tmp_path}/store"
    wrong = "Node w0 has target devices with invalid indices in its device map for w1"
    maps = ("{0: 4}", "{}")
    processes = [
        start([sys.executable, "-c", _JOINING, str(rank), *places, maps[rank]], XLA_FLAGS=FOUR_DEVICES)
        for rank in (0, 1)
    ]
    for code, output, errors in ended(processes):
        assert (code, output) == (0, f"{wrong}\n3\n"), errors
