"""What is sent, as `CommDebugMode` counts it, is no more than what layouts need."""

from __future__ import annotations

import json
import logging

import pytest

import weft as torch
import weft.distributed as dist
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed import _functional_collectives as functional
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from weft.distributed.tensor.debug import CommDebugMode, ExplicitRedistributionContext, visualize_sharding
from weft.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.up, self.down = (nn.Linear(8, 8, bias=False) for _ in range(4))

    def forward(self, x):
        x = self.q(x) + self.k(x) + self.up(x)
        return self.down(torch.relu(x))


def column_and_row(name, module, mesh):
    if name:
        placements = [Shard(1 if name == "down" else 0)]
        module.weight = nn.Parameter(distribute_tensor(module.weight.detach(), mesh, placements))


def test_column_wise_then_row_wise_layers_reduce_once_each_way():
    def program(mesh):
        model = distribute_module(Layers(), mesh, column_and_row)
        x = distribute_tensor(torch.ones(4, 8), mesh).requires_grad_()
        with CommDebugMode() as forward:
            y = model(x).redistribute(placements=[Replicate()])
        with CommDebugMode() as backward:
            y.sum().backward()
        assert x.grad.placements == (Replicate(),)
        return forward.get_comm_counts(), backward.get_comm_counts(), forward.get_bytes()

    assert on_mesh((2,), program) == [({"all_reduce": 1}, {"all_reduce": 1}, 128)] * 2


def test_replicas_reduce_their_gradients_once_each():
    def program(mesh):
        model = distribute_module(Layers(), mesh)
        x = distribute_tensor(torch.ones(4, 8), mesh, [Shard(0)])
        with CommDebugMode() as forward:
            loss = model(x).sum()
        with CommDebugMode() as backward:
            loss.backward()
        return forward.get_total_counts(), backward.get_comm_counts()

    assert on_mesh((2,), program) == [(0, {"all_reduce": 4})] * 2


def test_sharded_parameters_are_gathered_and_their_gradients_scattered():
    def shard(name, module, mesh):
        if name:
            module.weight = nn.Parameter(distribute_tensor(module.weight.detach(), mesh, [Shard(0)]))

    def program(mesh):
        model = distribute_module(Layers(), mesh, shard)
        x = distribute_tensor(torch.ones(64, 8), mesh, [Shard(0)])
        optimizer = torch.optim.AdamW(model.parameters())
        with CommDebugMode() as mode:
            model(x).sum().backward()
        with CommDebugMode() as step:
            optimizer.step()
        assert step.get_total_counts() == 0
        assert all(parameter.grad.placements == (Shard(0),) for parameter in model.parameters())
        return mode.get_comm_counts()

    counts = {"all_gather_into_tensor": 4, "reduce_scatter_tensor": 4}
    assert on_mesh((2,), program) == [counts] * 2


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


STYLES = {"0.up": ColwiseParallel(), "0.down": RowwiseParallel(), "1": ColwiseParallel()}


def step(mesh):
    """A mode that has seen a step of training of a small model, as PyTorch's does for the same model."""
    model = parallelize_module(nn.Sequential(Perceptron(), nn.Linear(8, 8)), mesh, STYLES)
    with CommDebugMode() as mode:
        model(torch.ones(4, 8, requires_grad=True)).sum().backward()
    return mode


LEVEL_0 = """\
Global
  FORWARD PASS
    *all_reduce: 1, 128 bytes
  BACKWARD PASS
    *all_reduce: 2, 256 bytes
    Sequential
      FORWARD PASS
        *all_reduce: 1, 128 bytes
      BACKWARD PASS
        *all_reduce: 2, 256 bytes
        Sequential.0
          FORWARD PASS
            *all_reduce: 1, 128 bytes
          BACKWARD PASS
            *all_reduce: 1, 128 bytes
            Sequential.0.up
              BACKWARD PASS
                *all_reduce: 1, 128 bytes
            Sequential.0.down
        Sequential.1
          BACKWARD PASS
            *all_reduce: 1, 128 bytes
"""


def test_what_modules_send_is_told_apart_by_passes():
    def program(mesh):
        mode = step(mesh)
        assert repr(mode) == "CommDebugMode(get_total_counts()=3)"
        assert (mode.get_comm_counts(), mode.get_comm_counts()["broadcast"], mode.get_bytes()) == (
            {"all_reduce": 3},
            0,
            384,
        )
        info = mode.get_parameter_info()
        assert {name: [*own] for name, own in info.items()} == {
            name: ["weight", "bias"] for name in ("Sequential.0.up", "Sequential.0.down", "Sequential.1")
        }
        assert info["Sequential.0.up"]["weight"].shape == (32, 8)
        placements = mode.get_sharding_info()
        assert placements["Sequential.0.down.weight"] == (Shard(1),)
        assert placements["Sequential.0.down.bias"] == (Replicate(),)
        return mode.generate_comm_debug_tracing_table(0)

    assert on_mesh((2,), program) == [LEVEL_0] * 2


def test_noise_levels():
    def program(mesh):
        mode = step(mesh)
        distributed, computing, everything = map(mode.generate_comm_debug_tracing_table, (1, 2, 3))
        for line in (
            "*module type: weft.nn._linear.Linear",
            "*Parameter List",
            " *weight: float32[32, 8] (S(0))",
            "**linear: float32[4, 8] (R), float32[32, 8] (S(0)), float32[32] (S(0)) -> float32[4, 32] (S(1))  at ",
            "**grad of linear: ",
            f"**all_reduce: float32[4, 8], 128 bytes  at {__file__}:",
        ):
            assert line in distributed
        assert "relu" not in distributed  # a plain tensor's
        assert "**relu: float32[4, 16] -> float32[4, 16]" in computing
        assert "**grad of relu" in computing
        assert "detach" not in computing
        assert "**detach" in everything
        with pytest.raises(ValueError, match="noise_level is 0, 1, 2 or 3, but got 7"):
            mode.generate_comm_debug_tracing_table(7)

    on_mesh((2,), program)


def test_reports_in_files(tmp_path):
    def program(mesh):
        mode = step(mesh)
        if mesh.get_rank():
            return
        mode.log_comm_debug_tracing_table_to_file(tmp_path / "log.txt", 1)
        assert (tmp_path / "log.txt").read_text() == mode.generate_comm_debug_tracing_table(1)
        mode.generate_json_dump(tmp_path / "log.json", 2)
        with pytest.raises(ValueError, match="noise_level"):
            mode.generate_json_dump(tmp_path / "other.json", -1)

    on_mesh((2,), program)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["log.json", "log.txt"]
    dump = json.loads((tmp_path / "log.json").read_text())
    assert (dump["fqn"], dump["collectives_forward"], dump["collectives_backward"]) == (
        "Global",
        [["all_reduce", 1, 128]],
        [["all_reduce", 2, 256]],
    )
    up, down = dump["children"][0]["children"][0]["children"]
    assert up["parameters"] == [["weight", "(Shard(dim=0),)"], ["bias", "(Shard(dim=0),)"]]
    (sent,) = up["sent_backward"]
    assert (sent["name"], sent["types"], sent["bytes"]) == ("all_reduce", ["float32[4, 8]"], 128)
    (linear,) = [operation for operation in down["operations_forward"] if operation["name"] == "linear"]
    assert linear["input_shape"] == ["[4, 32]", "[8, 32]", "[8]"]
    assert linear["input_sharding"] == ["(Shard(dim=1),)", "(Shard(dim=1),)", "(Partial(sum),)"]
    assert (linear["is_bw"], linear["noise_level"]) == (False, 1)


def test_collectives_of_groups_are_counted_as_in_pytorch():
    def program(mesh):
        x, parts = torch.ones(4), [torch.empty(4) for _ in range(2)]
        some = parts if mesh.get_rank() == 0 else None
        with CommDebugMode() as mode:
            dist.all_reduce(x)
            dist.broadcast(x, 0)
            dist.all_gather(parts, x)
            dist.all_gather_into_tensor(torch.empty(8), x)
            dist.reduce_scatter_tensor(torch.empty(2), x)
            dist.reduce(x, 0)
            dist.gather(x, some, 0)
            dist.scatter(x, some, 0)
            dist.all_to_all_single(torch.empty(4), x)
            dist.reduce_scatter(torch.empty(4), parts)
            dist.all_gather_object([None, None], 1)
            dist.all_reduce_coalesced([x, x.clone()])
            dist.barrier()
            dist.send(x, 0) if mesh.get_rank() else dist.recv(x, 1)
        with CommDebugMode() as coalesced, dist._coalescing_manager():
            dist.all_reduce(x)
            dist.all_reduce(parts[0])
        assert coalesced.get_comm_counts() == {"allreduce_coalesced_": 1}
        assert coalesced.get_bytes() == 32
        return mode.get_comm_counts()

    once = "allreduce_ broadcast_ _allgather_base_ _reduce_scatter_base_ reduce_ gather_ scatter_ alltoall_base_ "
    once += "reduce_scatter_ allreduce_coalesced_"
    assert on_mesh((2,), program) == [{"allgather_": 3, **dict.fromkeys(once.split(), 1)}] * 2


def test_functional_collectives_are_counted_once_each():
    def program(mesh):
        x, group = torch.ones(4), mesh.get_group()
        with CommDebugMode() as mode:
            functional.all_reduce(x, "sum", group)
            functional.all_gather_tensor(x, 0, group)
            functional.reduce_scatter_tensor(x, "avg", 0, group)
            functional.all_to_all_single(x, None, None, group)
            functional.broadcast(x, 0, group)
        return mode.get_comm_counts()

    names = ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast")
    assert on_mesh((2,), program) == [dict.fromkeys(names, 1)] * 2


def test_blocks_within_blocks_after_errors_and_once_more():
    def program(mesh):
        x = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
        outer, inner = CommDebugMode(), CommDebugMode()
        with outer:
            x.full_tensor()
            with inner:
                x.full_tensor()
            with pytest.raises(RuntimeError, match="in use already; make another one"), outer:
                pass
            x.full_tensor()
        assert (outer.get_total_counts(), inner.get_total_counts()) == (3, 1)
        x.full_tensor()
        assert outer.get_total_counts() == 3
        with pytest.raises(ZeroDivisionError), outer:
            nn.Sequential(nn.Identity(), Failing())(x)
        assert outer.generate_comm_debug_tracing_table(0).split() == [
            "Global", "Sequential", "Sequential.0", "Sequential.1"
        ]  # fmt: skip
        with outer:
            nn.Identity()(x).full_tensor()
            nn.Identity()(x)
        assert outer.generate_comm_debug_tracing_table(0).endswith("\n    Identity (2 calls)\n")
        assert outer.get_total_counts() == 1

    on_mesh((2,), program)


class Failing(nn.Module):
    def forward(self, x):
        raise ZeroDivisionError


def test_what_was_recorded_before_the_block_belongs_to_no_module():
    def program(mesh):
        model = distribute_module(Layers(), mesh)
        loss = model(distribute_tensor(torch.ones(4, 8), mesh, [Shard(0)])).sum()
        with CommDebugMode() as mode:
            loss.backward()
        return mode.generate_comm_debug_tracing_table(0)

    assert on_mesh((2,), program) == ["Global\n  BACKWARD PASS\n    *all_reduce: 4, 1024 bytes\n"] * 2


def test_communication_that_nobody_has_called_for_is_refused():
    def program(mesh):
        x = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
        whole = distribute_tensor(torch.arange(8.0), mesh)
        with ExplicitRedistributionContext():
            total = (x * 2).sum()
            for implicit in (
                total.item,
                lambda: x[0] + 1,
                lambda: x + x.flip(0),
                lambda: torch.linalg.qr(x.view(4, 2)),
            ):
                with pytest.raises(RuntimeError, match=REFUSED):
                    implicit()
            assert total.full_tensor().item() == 56
            assert x.redistribute(placements=[Replicate()]).sum().item() == 28
            assert (x + whole).placements == (Shard(0),)
            dist.all_reduce(torch.ones(1))
            with ExplicitRedistributionContext(enable=False):
                assert total.item() == 56
            with ExplicitRedistributionContext(mode="warn"), pytest.warns(UserWarning, match=REFUSED) as warned:
                assert total.item() == 56
            assert [warning.filename for warning in warned] == [__file__]
            with pytest.raises(RuntimeError, match=REFUSED):
                total.item()
        assert total.item() == 56
        with pytest.raises(RuntimeError, match='Invalid mode quiet; it is "raise" or "warn"'):
            ExplicitRedistributionContext(mode="quiet")

    on_mesh((2,), program)


REFUSED = (
    r"^Implicit redistribution occurred for float32\[[\d, ]*\] \(.*\) to \(R\) over \[2\] devices, "
    r"at .*test_debug.py:\d+, while ExplicitRedistributionContext was active; "
    r"call redistribute\(\) or full_tensor\(\) before$"
)


def test_strictly_nothing_may_move_without_being_called_for():
    def program(mesh):
        x = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
        whole = distribute_tensor(torch.arange(8.0), mesh)
        with ExplicitRedistributionContext(strict=True):
            distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
            whole.redistribute(placements=[Shard(0)])
            with pytest.raises(RuntimeError, match=r"occurred for float32\[8\] \(R\) to \(S\(0\)\)"):
                x + whole
        weight = distribute_tensor(torch.ones(8), mesh).requires_grad_()
        loss = (x * weight).sum()
        with (
            ExplicitRedistributionContext(),
            pytest.raises(RuntimeError, match=r"for all_gather\w+ of .*need not hold"),
        ):
            loss.backward()

    on_mesh((2,), program)


def shown(shape, size, placements, capsys, **options):
    """What `visualize_sharding` prints in a job with a mesh of this shape, line by line, without blank lines."""

    def program(mesh):
        visualize_sharding(distribute_tensor(torch.ones(size), mesh, placements), **options)

    on_mesh(shape, program)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert all(len(line) <= 80 for line in lines)
    return lines


def test_a_table_shows_who_has_what(capsys):
    assert shown((2, 2), (4, 6), [Shard(0), Replicate()], capsys, header="weights [x]") == [
        "weights [x]",
        "            Col 0-5",
        " ────────────────────",
        "  Row 0-1   cpu:0, 1",
        "  Row 2-3   cpu:2, 3",
    ]
    assert shown((2,), (5,), [Shard(0)], capsys)[2:] == ["  Row 0-2   cpu:0", "  Row 3-4   cpu:1"]


def test_empty_parts_are_named_and_empty_tensors_not_shown(capsys):
    assert shown((4,), (2, 1), [Shard(0)], capsys)[2:] == [
        "  Row 0-0   cpu:0",
        "  Row 1-1   cpu:1",
        "no elements: cpu:2, 3",
    ]
    assert shown((2,), (0, 3), [Shard(1)], capsys) == []


def test_three_dims_are_a_table_for_each_slice(capsys):
    lines = shown((2, 2), (3, 4, 6), [Shard(0), Shard(2)], capsys)
    assert [line for line in lines if "─" not in line] == [
        "Slice 0-1",
        "            Col 0-2   Col 3-5",
        "  Row 0-3   cpu:0     cpu:1",
        "Slice 2-2",
        "            Col 0-2   Col 3-5",
        "  Row 0-3   cpu:2     cpu:3",
    ]


def test_wide_tables_are_cut(capsys):
    for options in ({}, {"use_rich": True}):
        lines = shown((8,), (1, 4000), [Shard(1)], capsys, **options)
        assert sum("Row 0-0" in line for line in lines) == 2
        assert all(f"cpu:{rank}" in " ".join(lines) for rank in range(8))
    assert "┌" in lines[0]
    assert sum("0" in line for line in shown((16,), (1,), [Replicate()], capsys)) > 2


def test_tables_are_for_one_to_three_dims_and_members_of_the_mesh(capsys):
    def program(mesh):
        with pytest.raises(RuntimeError, match="shows tensors of 1 to 3 dims, but got one of 4"):
            visualize_sharding(distribute_tensor(torch.ones(1, 1, 1, 1), mesh))
        outside = DeviceMesh("cpu", [2])
        own = torch.ones(2 * (mesh.get_rank() == 2))
        visualize_sharding(DTensor.from_local(own, outside, [Shard(0)], shape=(2,)))

    on_mesh((3,), program)
    assert capsys.readouterr().out.count("cpu:2") == 1


def test_redistributions_and_plans_are_logged(caplog):
    def program(mesh):
        x = distribute_tensor(torch.ones(4, 6), mesh, [Shard(0)])
        y = distribute_tensor(torch.ones(4, 6), mesh, [Shard(1)])
        return x + y

    with caplog.at_level(logging.DEBUG, "weft.distributed.tensor"):
        on_mesh((2,), program)
    texts = [record.getMessage() for record in caplog.records]
    assert any(
        text.startswith("plan of add: float32[4, 6] (S(0)), float32[4, 6] (S(1)) moved to (S(0))") for text in texts
    )
    moved = [text for text in texts if text.startswith("redistribution of") and "(R)" not in text]
    assert len(moved) == 2
    assert f"float32[4, 6] (S(1)) to (S(0)) over [2] devices, own part 48 bytes, at {__file__}:" in moved[0]
    assert sum(text.startswith("all_to_all_single of float32[4, 3], 48 bytes, at ") for text in texts) == 2
