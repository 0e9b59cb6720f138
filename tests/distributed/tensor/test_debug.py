"""What is sent, as `CommDebugMode` counts it, is no more than what layouts need."""

from __future__ import annotations

import json

import pytest

import weft as torch
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor
from weft.distributed.tensor.debug import CommDebugMode, ExplicitRedistributionContext, visualize_sharding


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


def test_reports(tmp_path):
    def program(mesh):
        model = distribute_module(Layers(), mesh, column_and_row)
        x = distribute_tensor(torch.ones(4, 8), mesh)
        with CommDebugMode() as mode:
            y = model(x)
            y.full_tensor()
        if mesh.get_rank():
            return None
        assert mode.get_parameter_info()["Layers.up"] == {"weight": (8, 8)}
        assert mode.get_sharding_info()["Layers.down"] == {"weight": (Shard(1),)}
        plain, full = (mode.generate_comm_debug_tracing_table(level) for level in (0, 3))
        assert plain.splitlines()[0] == "Global  (all_reduce: 1)"
        assert "Layers.up" in plain
        assert "linear" not in plain
        assert "linear: float32[4, 8] (R), float32[8, 8] (S(0)) -> float32[4, 8] (S(1))  at " in full
        assert __file__ in full
        with pytest.raises(ValueError, match="noise_level is 0, 1, 2 or 3, but got 7"):
            mode.generate_comm_debug_tracing_table(7)
        mode.log_comm_debug_tracing_table_to_file(tmp_path / "log.txt", 1)
        mode.generate_json_dump(tmp_path / "log.json", 2)
        dump = json.loads((tmp_path / "log.json").read_text())
        assert dump["counts"] == {"all_reduce": 1}
        assert [child["name"] for child in dump["children"]] == ["Layers"]
        return (tmp_path / "log.txt").read_text()

    text, _ = on_mesh((2,), program)
    assert "*weight: ('S(1)',)" in text
    assert "all_reduce: float32[4, 8]  128 bytes  at " in text


def test_communication_that_nobody_has_called_for_is_refused():
    def program(mesh):
        x = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
        with ExplicitRedistributionContext():
            total = (x * 2).sum()
            for implicit in (
                total.item,
                lambda: x[0] + 1,
                lambda: x + x.flip(0),
                lambda: torch.linalg.qr(x.view(4, 2)),
            ):
                with pytest.raises(RuntimeError, match=r"^implicit \w+ of float32.* at .*test_debug.py:\d+, where"):
                    implicit()
            assert total.full_tensor().item() == 56
            assert x.redistribute(placements=[Replicate()]).sum().item() == 28
            with ExplicitRedistributionContext(enable=False):
                assert total.item() == 56
            with ExplicitRedistributionContext(mode="warn"), pytest.warns(UserWarning, match="implicit all_reduce"):
                assert total.item() == 56
        assert total.item() == 56
        with pytest.raises(RuntimeError, match='Invalid mode quiet; it is "raise" or "warn"'):
            ExplicitRedistributionContext(mode="quiet")

    on_mesh((2,), program)


def test_a_table_shows_who_has_what(capsys):
    def program(mesh):
        x = distribute_tensor(torch.ones(4, 6), mesh, [Shard(0), Replicate()])
        if not mesh.get_rank():
            visualize_sharding(x, header="weights")
            with pytest.raises(RuntimeError, match="only implemented for 1D or 2D"):
                visualize_sharding(x.view(2, 2, 6))
        else:
            x.view(2, 2, 6)

    on_mesh((2, 2), program, ("dp", "tp"))
    shown = capsys.readouterr().out
    assert "weights" in shown
    for text in ("Col 0-5", "Row 0-1", "Row 2-3", "cpu:0, cpu:1", "cpu:2, cpu:3"):
        assert text in shown
