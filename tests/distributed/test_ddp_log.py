"""What replicas tell of themselves."""

from __future__ import annotations

import pytest

import weft
import weft.distributed as dist
from weft import nn
from weft.distributed import run_threads
from weft.nn.parallel.distributed import DistributedDataParallel, _dump_DDP_relevant_env_vars


def on_a_rank(call):
    def rank(me):
        dist.init_process_group("threads")
        return call()

    return run_threads(rank, nprocs=1)[0]


def test_texts_and_numbers(monkeypatch):
    monkeypatch.setenv("MASTER_PORT", "1234")
    monkeypatch.delenv("MASTER_ADDR", raising=False)

    def call():
        replica = DistributedDataParallel(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1).double()), bucket_cap_mb=1.5)
        found = replica._get_ddp_logging_data()
        assert "has_rebuilt_buckets" not in found
        return found

    found = on_a_rank(call)
    expected = {
        "world_size": 1,
        "rank": 0,
        "backend_name": "threads",
        "module_name": "Sequential",
        "device_ids": "",
        "output_device": -1,
        "broadcast_buffers": 1,
        "find_unused_parameters": 0,
        "gradient_as_bucket_view": 0,
        "bucket_cap_bytes": int(1.5 * 1024 * 1024),
        "dtypes": "double, float",
        "num_parameter_tensors": 4,
        "total_parameter_size_bytes": 9 * 4 + 4 * 8,
        "bucket_sizes": "32, 36",
        "master_port": "1234",
        "master_addr": "N/A",
        "iteration": 0,
        "has_sync_bn": 0,
        "is_multi_device_module": 0,
    }
    assert {name: found[name] for name in expected} == expected
    assert {type(value) for value in found.values()} == {int, str}


def test_passes_are_counted():
    def call():
        model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1, bias=False))
        replica = DistributedDataParallel(model)
        replica._set_ddp_runtime_logging_sample_rate(2)
        for _ in range(3):
            replica(weft.ones(1, 2)).sum().backward()
        return replica._get_ddp_logging_data()

    found = on_a_rank(call)
    expected = {
        "iteration": 2,
        "has_rebuilt_buckets": 1,
        "num_buckets_reduced": 1,
        "unused_parameter_size": 0,
        "prev_iteration_grad_ready_order_indices": "1, 0",
        "rebuilt_bucket_sizes": "36",
        "can_set_static_graph": 1,
        "rebuilt_per_bucket_param_indices": "1 0",
    }
    assert {name: found[name] for name in expected} == expected


def test_unused_parameters_are_told():
    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)

        def forward(self, x, second):
            return (self.second if second else self.first)(x)

    def call():
        replica, found = DistributedDataParallel(Either(), find_unused_parameters=True), []
        for second in (False, False, True):
            replica(weft.ones(1, 1), second).sum().backward()
            data = replica._get_ddp_logging_data()
            found.append((data["unused_parameter_size"], data["can_set_static_graph"], data["has_rebuilt_buckets"]))
        return found

    assert on_a_rank(call) == [(4, 1, 0), (4, 1, 0), (4, 0, 0)]


def test_a_graph_becomes_static_before_the_first_pass():
    def call():
        replica = DistributedDataParallel(nn.Linear(1, 1))
        replica(weft.ones(1, 1)).sum().backward()
        with pytest.raises(RuntimeError, match=r"^set_static_graph\(\) should be called before training loop starts"):
            replica._set_static_graph()
        assert not replica.static_graph
        return replica._get_ddp_logging_data()

    found = on_a_rank(call)
    assert found["has_error"] == 1
    assert "should be called before training loop starts" in found["error"]
    assert "static_graph" not in found


def test_hooks_and_static_graphs_are_told():
    def hook(state, bucket):
        raise NotImplementedError

    def call():
        replica = DistributedDataParallel(nn.Linear(1, 1), static_graph=True)
        replica.register_comm_hook(None, hook)
        with pytest.raises(ValueError, match=r"^DDP runtime logging sample rate should be equal or greater than 1$"):
            replica._set_ddp_runtime_logging_sample_rate(0)
        return replica._get_ddp_logging_data()

    found = on_a_rank(call)
    assert found["static_graph"] == 1
    assert found["comm_hook"].endswith("hook")


def test_the_environment_is_printed(monkeypatch, capsys):
    monkeypatch.setenv("MASTER_ADDR", "here")
    monkeypatch.delenv("NCCL_TOPO_DUMP_FILE", raising=False)
    _dump_DDP_relevant_env_vars()
    printed = capsys.readouterr().out.splitlines()
    assert "env:MASTER_ADDR=here" in printed
    assert "env:NCCL_TOPO_DUMP_FILE=N/A" in printed
