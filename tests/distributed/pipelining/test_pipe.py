"""Models that are split at submodules."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch
from tests.distributed.pipelining.jobs import on_ranks
from tests.distributed.pipelining.models import (
    batches,
    cross_entropy,
    trained,
    trained_by,
    whole_model,
)
from weft import nn
from weft.distributed.pipelining import (
    Pipe,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    SplitPoint,
    build_stage,
    pipe_split,
    pipeline,
)


class Skipping(nn.Module):
    """A tensor goes past a stage; another one is a result of the first stage."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 2), nn.Linear(2, 2), nn.Bilinear(2, 2, 2)
        self.noise = nn.Dropout(0.5)

    def forward(self, x, *, scale=None):
        y = self.a(x)
        pipe_split()
        z = self.noise(self.b(y))
        pipe_split()
        return {"z": self.c(z, x), "y": y}


def split_language(model):
    spec = {"blocks.1": SplitPoint.BEGINNING, "blocks.2": SplitPoint.BEGINNING, "blocks.3": SplitPoint.BEGINNING}
    return pipeline(model, (batches(1)[0][0][:2],), split_spec=spec)


def test_a_split_model_trains_as_the_whole():
    def program(rank):
        pipe = split_language(whole_model())
        stages = [pipe.build_stage(index, "cpu") for index in (rank, rank + 2)]
        return trained_by(ScheduleInterleaved1F1B(stages, 4, cross_entropy), stages, 2)

    np.testing.assert_allclose(on_ranks(2, program)[1], trained(whole_model(), 2), rtol=1e-9)


def test_parts_have_the_names_and_the_modules_of_the_model():
    model = whole_model()
    pipe = split_language(model)
    assert isinstance(pipe, Pipe)
    assert pipe.num_stages == pipe.info().num_stages == 4
    parts = [pipe.get_stage_module(index) for index in range(4)]
    assert sorted(name for part in parts for name in part.state_dict()) == sorted(model.state_dict())
    assert parts[1].get_submodule("blocks.1") is model.blocks["1"]
    assert "calls: blocks.3, head" in repr(parts[3])
    tokens = batches(1)[0][0]
    assert torch.equal(pipe(tokens)[0], model(tokens))
    with pytest.raises(ValueError, match=r"^Invalid stage index 4: there are 4 stages$"):
        pipe.get_stage_module(4)


def test_before_and_after_submodules_at_any_depth():
    layers = nn.Sequential(
        nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 3), nn.BatchNorm1d(3)), nn.Linear(3, 1)
    )
    x = torch.randn(4, 2)
    state = torch.get_rng_state().tolist()
    pipe = pipeline(layers, (x,), split_spec={"1.1": SplitPoint.BEGINNING, "1": SplitPoint.END})
    assert [[call.name for call in part._calls] for part in pipe.stages] == [["0", "1.0"], ["1.1", "1.2"], ["2"]]
    assert layers[1][2].num_batches_tracked.item() == 0
    assert torch.get_rng_state().tolist() == state
    assert torch.equal(pipe(x)[0], layers(x))


def test_tensors_go_past_stages():
    """Also their gradients come back that way."""

    def program(rank):
        torch.manual_seed(0)
        model = Skipping().double()
        x = torch.randn(4, 2, dtype=torch.float64)
        pipe = pipeline(model.eval(), (x[:2],), {"scale": None})
        assert pipe.num_stages == 3
        stage = build_stage(pipe.get_stage_module(rank), rank, pipe.info(), "cpu")
        schedule = ScheduleGPipe(stage, 2, lambda results, target: (results["z"] * results["y"] - target).mean())
        results = schedule.step(x, target=x, scale=None) if rank == 0 else schedule.step(target=x)
        grads = {name: p.grad for name, p in stage.submod.named_parameters()}
        model.zero_grad()
        expected = model(x)
        (expected["z"] * expected["y"] - x).mean().backward()
        for name, parameter in model.named_parameters():
            if name in grads:
                np.testing.assert_allclose(grads[name], parameter.grad, rtol=1e-9)
        return results, {name: value.detach() for name, value in expected.items()}

    results, expected = on_ranks(3, program)[2]
    for name, value in expected.items():
        np.testing.assert_allclose(results[name], value, rtol=1e-9)


def test_splits_within_submodules():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.ReLU()

        def forward(self, x):
            x = self.a(x)
            pipe_split()
            return self.b(x)

    pipe_split()
    model, x = nn.Sequential(nn.Linear(2, 2), Inner()), torch.randn(3, 2)
    pipe = pipeline(model, (x,))
    assert [[call.name for call in part._calls] for part in pipe.stages] == [["0", "1.a"], ["1.b"]]
    assert torch.equal(pipe(x)[0], model(x))


class Residual(nn.Module):
    def __init__(self, in_place=False):
        super().__init__()
        self.a, self.b, self.in_place = nn.Linear(2, 2), nn.Linear(2, 2), in_place

    def forward(self, x):
        y = self.a(x)
        return self.b(y.add_(1) if self.in_place else x + y)


@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_computed_between_submodules_is_a_part_of_a_stage(in_place):
    model, x = Residual(in_place), torch.randn(3, 2)
    pipe = pipeline(model, (torch.ones(3, 2),), split_spec={"b": SplitPoint.BEGINNING})
    assert torch.equal(pipe(x)[0], model(x))
    first = pipe.get_stage_module(0)(x)
    assert isinstance(first, torch.Tensor)
    assert torch.equal(pipe.get_stage_module(1)(first), model(x))
    whole = nn.Sequential(Residual(in_place), nn.Linear(2, 2))
    assert pipeline(whole, (torch.ones(3, 2),), split_spec={"1": SplitPoint.BEGINNING}).num_stages == 2


class Scaled(nn.Module):
    """Between submodules it has states of its own, numbers, writes, and a part without gradients."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.randn(2))
        self.register_buffer("shift", torch.randn(2))
        self.table = torch.randn(4, 2)

    def forward(self, x):
        y = torch.relu(self.a(x * self.scale)) + self.shift
        with torch.no_grad():
            constant = y.mean() * x.shape[1]
        z = y + self.table[: x.size(0)]
        z[0] = 1.0
        z += constant
        pipe_split()
        return {"z": self.b(z) * self.shift, "pair": (constant, y.max(dim=1).values)}


def test_states_of_the_model_itself_go_with_their_stage():
    model, x = Scaled(), torch.randn(3, 2)
    pipe = pipeline(model, (x,))
    assert [name for name, _ in pipe.get_stage_module(0).named_parameters()] == ["scale", "a.weight", "a.bias"]
    assert [name for name, _ in pipe.get_stage_module(1).named_buffers()] == ["shift"]
    outputs, expected = pipe(x), model(x)
    assert isinstance(outputs, tuple)
    for output, leaf in zip(outputs, [*expected["pair"], expected["z"]], strict=True):
        assert torch.equal(output, leaf)
    outputs[2].sum().backward()
    grads = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    model(x)["z"].sum().backward()
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(grads[name], parameter.grad, rtol=1e-6)


def test_a_write_through_a_view_is_refused():
    class Viewing(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            y = self.a(x)
            y[0].add_(1)
            return self.b(y)

    with pytest.raises(
        RuntimeError, match=r"^pipeline\(\): 'b' takes a tensor of shape \[3, 2\] .* another view of it"
    ):
        pipeline(Viewing(), (torch.ones(3, 2),), split_spec={"b": SplitPoint.BEGINNING})


def test_models_that_cannot_be_split_as_asked():
    x, shared = torch.ones(3, 2), nn.Linear(2, 2)
    with pytest.raises(AttributeError, match=r"^split_spec: Linear has no submodule 'x'$"):
        pipeline(shared, (x,), split_spec={"x": SplitPoint.END})
    with pytest.raises(
        RuntimeError, match=r"^pipeline\(\): the stages \[1\] call no submodule; a split point stands at"
    ):
        pipeline(nn.Sequential(shared), (x,), split_spec={"0": SplitPoint.END})
    with pytest.raises(
        RuntimeError, match=r"stage 1 has '0.weight', which is '0.weight' of stage 0; stages cannot share"
    ):
        pipeline(nn.Sequential(shared, nn.ReLU(), shared), (x,), split_spec={"1": SplitPoint.BEGINNING})


def test_arguments_other_than_the_recorded_ones_are_refused():
    pipe = pipeline(nn.Sequential(Skipping()), (torch.ones(3, 2),))
    with pytest.raises(RuntimeError, match=r"^the model's arguments must be like those that pipeline\(\) has recorded"):
        pipe(torch.ones(3, 2), 1)
