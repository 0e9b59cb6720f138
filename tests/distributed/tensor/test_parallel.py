"""Tensor parallelism by styles."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import weft as torch
from tests.distributed.tensor.test_dtensor import Language
from tests.distributed.tensor.threads import on_mesh
from weft import nn
from weft.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from weft.distributed.tensor.debug import CommDebugMode
from weft.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


def gradients(model):
    return [p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for p in model.parameters()]


def agree(model, plain, x, run=None):
    """Require that a parallel model gives the results and gradients of a plain one, from plain inputs."""
    y = model(x) if run is None else run(model, x)
    whole = y.full_tensor() if isinstance(y, DTensor) else y
    expected = plain(x)
    np.testing.assert_allclose(whole.detach(), expected.detach(), rtol=1e-9)
    y.sum().backward()
    expected.sum().backward()
    for own, other in zip(gradients(model), gradients(plain), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-12)


def started():
    torch.manual_seed(0)
    plain = Perceptron().double()
    return plain, copy.deepcopy(plain), torch.randn(2, 4, 8, dtype=torch.float64)


def test_columns_then_rows():
    def program(mesh):
        plain, model, x = started()
        parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        assert model.up.weight.placements == (Shard(0),)
        assert model.down.weight.placements == (Shard(1),)
        assert isinstance(model.norm.weight, nn.Parameter)
        assert not isinstance(model.norm.weight, DTensor)
        agree(model, plain, x)
        with CommDebugMode() as mode:
            model(x)
        return mode.get_comm_counts()

    assert on_mesh((2,), program) == [{"all_reduce": 1}] * 2


def test_sequences_are_split_between_the_layers():
    def program(mesh):
        plain, model, x = started()
        plan = {
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        }
        parallelize_module(model, mesh, plan)
        part = x.chunk(2, 1)[mesh.get_rank()]
        agree(model, plain, x, lambda model, x: model(part))
        model.norm.requires_grad_(False)
        with CommDebugMode() as forward:
            output = model(part.requires_grad_())
        with CommDebugMode() as backward:
            output.to_local().sum().backward()
        return forward.get_comm_counts(), backward.get_comm_counts()

    once = {"all_gather_into_tensor": 1, "reduce_scatter_tensor": 1}
    assert on_mesh((2,), program) == [(once, once)] * 2


def test_gradients_of_what_was_gathered_are_scattered_as_they_are_added_up():
    """Also where some of its uses need no sum, and where it is gathered over two dims of a mesh."""

    def program(mesh):
        x = torch.arange(64.0, dtype=torch.float64).reshape(8, 8)
        weight = (torch.arange(64, dtype=torch.float64).reshape(8, 8) % 7).cos()
        plain = x.clone().requires_grad_()
        ((plain @ weight.T).sin().sum() + plain.cos().sum()).backward()
        split = distribute_tensor(x, mesh, [Shard(0), Shard(1)]).requires_grad_()
        rows = distribute_tensor(weight, mesh, [Replicate(), Shard(0)])
        whole = split.redistribute(placements=[Replicate(), Replicate()])
        (whole.mm(rows.T).sin().sum() + whole.mm(rows.T).sum() * 0 + whole.cos().sum()).backward()
        return torch.allclose(split.grad.full_tensor(), plain.grad, rtol=1e-12)

    assert on_mesh((2, 2), program) == [True] * 4


def test_a_language_model_by_patterns():
    def program(mesh):
        torch.manual_seed(0)
        plain = Language().double()
        model = copy.deepcopy(plain)
        split = ColwiseParallel(use_local_output=False)
        plan = {f"blocks.*.attention.{name}": split for name in "qkv"}
        plan |= {"blocks.*.attention.o": RowwiseParallel(), "blocks.*.up": split, "blocks.*.down": RowwiseParallel()}
        plan |= {
            "words": RowwiseParallel(input_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Replicate()),
        }
        parallelize_module(model, mesh, plan)
        tokens, targets = torch.randint(0, 32, (2, 4)), torch.randint(0, 32, (2, 4))
        losses = model(tokens, targets), plain(tokens, targets)
        for loss in losses:
            loss.backward()
        assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-12)
        for own, other in zip(gradients(model), gradients(plain), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-12)

    on_mesh((2,), program)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adafactor])
def test_parameters_that_stay_plain_are_trained_with_the_others(kind):
    def program(mesh):
        plain, model, x = started()
        parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        for module in (plain, model):
            optimizer = kind(module.parameters(), lr=0.01)
            for _ in range(3):
                optimizer.zero_grad()
                module(x).square().mean().backward()
                nn.utils.clip_grad_norm_(module.parameters(), 0.1)
                optimizer.step()
        assert type(model.norm.weight) is nn.Parameter
        assert model.up.weight.placements == (Shard(0),)
        for own, other in zip(model.parameters(), plain.parameters(), strict=True):
            whole = own.full_tensor() if isinstance(own, DTensor) else own
            np.testing.assert_allclose(whole.detach(), other.detach(), rtol=1e-9, atol=1e-12)
        model.load_state_dict({name: 2 * value for name, value in plain.state_dict().items()})
        assert torch.equal(model.up.weight.full_tensor(), 2 * plain.up.weight)

    on_mesh((2,), program)


def test_features_that_do_not_divide():
    def program(mesh):
        torch.manual_seed(0)
        layers = [nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)]
        plain, x = nn.Sequential(*layers), torch.randn(2, 4)
        wanted = plain(x)
        model = parallelize_module(copy.deepcopy(plain), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        y = model(x)
        assert torch.allclose(y, wanted, atol=1e-6)
        y.sum().backward()
        plain(x).sum().backward()
        assert torch.allclose(model[0].weight.grad.full_tensor(), plain[0].weight.grad, atol=1e-6)
        with pytest.raises(
            TypeError, match=r"parallelize_plan\['0'\] must be a style, such as ColwiseParallel\(\), got"
        ):
            parallelize_module(plain, mesh, {"0": ColwiseParallel})

    on_mesh((2,), program)


class Pair(nn.Module):
    def forward(self, a, b, scale=None):
        return a * (1 if scale is None else scale), b


def test_inputs_and_outputs_are_prepared():
    def program(mesh):
        x = torch.ones(4, 2)
        inputs = PrepareModuleInput(
            input_layouts=(Replicate(), None),
            desired_input_layouts=(Shard(0), None),
            input_kwarg_layouts={"scale": Replicate()},
            desired_input_kwarg_layouts={"scale": Shard(0)},
        )
        a, b = parallelize_module(Pair(), mesh, inputs)(x, x, scale=x)
        assert (a.placements, type(b)) == ((Shard(0),), torch.Tensor)
        outputs = PrepareModuleOutput(output_layouts=(Shard(0), None), desired_output_layouts=(Replicate(), None))
        assert parallelize_module(Pair(), mesh, outputs)(x, x)[0].shape == (8, 2)
        both = PrepareModuleInputOutput(
            input_layouts=(Shard(0), None),
            desired_input_layouts=(Replicate(), None),
            output_layouts=(Replicate(), None),
            desired_output_layouts=(Shard(1), None),
        )
        assert parallelize_module(Pair(), mesh, both)(x, x)[0].shape == (8, 1)

    on_mesh((2,), program)


def test_bad_plans():
    def program(mesh):
        _, model, _ = started()
        with pytest.raises(ValueError, match=r"takes a mesh of one dim, but got one with 2; slice it, as mesh\['tp'\]"):
            parallelize_module(model, mesh, ColwiseParallel())
        line = mesh["tp"]
        with pytest.raises(RuntimeError, match=r"^ColwiseParallel currently only supports nn.Linear and nn.Embedding"):
            parallelize_module(model, line, ColwiseParallel())
        with pytest.raises(TypeError, match="must be a ParallelStyle, or a dict of them by names, but got list"):
            parallelize_module(model, line, [ColwiseParallel()])
        with pytest.raises(AssertionError, match="should have same length!"):
            PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=())
        prepared = parallelize_module(
            Pair(), line, PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(0))
        )
        with pytest.raises(
            ValueError, match="module inputs and input_layouts should have same length, but got 2 and 1!"
        ):
            prepared(torch.ones(2), torch.ones(2))
        return True

    assert on_mesh((1, 1), program, ("dp", "tp")) == [True]


def test_a_plan_that_names_no_module_warns():
    def program(mesh):
        with pytest.warns(UserWarning, match="no submodule is called 'missing', so nothing is done"):
            parallelize_module(Perceptron(), mesh, {"missing": ColwiseParallel()})
        with pytest.warns(UserWarning, match="No parallelize_plan is provided"):
            parallelize_module(Perceptron(), mesh)

    on_mesh((1,), program)
