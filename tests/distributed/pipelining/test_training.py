"""Models trained in stages, which must be as if they were trained in one process."""

from __future__ import annotations

import copy
import os
import random
import weakref

import numpy as np
import pytest

import weft as torch
from tests.distributed.pipelining.jobs import on_ranks
from tests.distributed.pipelining.models import (
    Language,
    batches,
    cross_entropy,
    part_of,
    stages_of,
    trained,
    trained_by,
    whole_model,
)
from tests.distributed.tensor.threads import on_mesh
from weft.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from weft.distributed.pipelining._actions import Action, Kind
from weft.distributed.pipelining._orders import looped_stages, v_stages
from weft.distributed.pipelining._plan import with_messages
from weft.distributed.pipelining.schedules import _PipelineScheduleRuntime, get_schedule_class
from weft.distributed.tensor import DTensor, Replicate, Shard
from weft.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from weft.nn.parallel import DistributedDataParallel

STEPS = 50 if "WEFT_DTENSOR_SEEDS" in os.environ else 3

CASES = [
    (ScheduleGPipe, 2, 1, 4),
    (ScheduleGPipe, 4, 1, 2),
    (Schedule1F1B, 2, 1, 4),
    (Schedule1F1B, 4, 1, 8),
    (ScheduleLoopedBFS, 2, 2, 4),
    (ScheduleInterleaved1F1B, 2, 2, 4),
    (ScheduleInterleavedZeroBubble, 2, 2, 4),
    (ScheduleInterleavedZeroBubble, 4, 1, 8),
    (ScheduleZBVZeroBubble, 2, 2, 4),
]


def scheduled(kind, stages, microbatches, *options, **more):
    single = kind in (ScheduleGPipe, Schedule1F1B)
    return kind(stages[0] if single else stages, microbatches, *options, **more)


@pytest.mark.parametrize(("kind", "ranks", "local", "microbatches"), CASES)
def test_losses_follow_those_of_one_process(kind, ranks, local, microbatches):
    indices = (v_stages if kind is ScheduleZBVZeroBubble else looped_stages)(ranks, local)

    def program(rank):
        stages = stages_of(whole_model(), indices[rank], ranks * local)
        return trained_by(scheduled(kind, stages, microbatches, cross_entropy), stages, STEPS)

    followed = [losses for losses in on_ranks(ranks, program) if losses]
    assert len(followed) == 1
    np.testing.assert_allclose(followed[0], trained(whole_model(), STEPS), rtol=1e-9)


def gradients_of(module):
    return {name: np.asarray(p.grad.detach()) for name, p in module.named_parameters()}


def whole_gradients(scale=1.0):
    model = whole_model()
    ((tokens, targets),) = batches(1)
    (cross_entropy(model(tokens), targets) * scale).backward()
    return gradients_of(model)


def test_gradients_add_up_and_may_be_sums():
    """Two steps without `zero_grad`; then gradients of the sum of the losses, instead of their mean."""

    def program(rank):
        ((tokens, targets),) = batches(1)
        for scale_grads, steps, factor in ((True, 2, 2), (False, 1, 4)):
            stages = stages_of(whole_model(), [rank], 2)
            schedule = Schedule1F1B(stages[0], 4, cross_entropy, scale_grads=scale_grads)
            for _ in range(steps):
                schedule.step(tokens, target=targets, return_outputs=False)
            expected = whole_gradients(factor)
            for name, grad in gradients_of(stages[0].submod).items():
                np.testing.assert_allclose(grad, expected[name], rtol=1e-9, atol=1e-12)

    on_ranks(2, program)


def test_uneven_microbatches_count_equally():
    tokens, targets = batches(1, 7)[0]
    model = whole_model()
    pairs = zip(tokens.tensor_split(3), targets.tensor_split(3), strict=True)
    torch.stack([cross_entropy(model(x), y) for x, y in pairs]).mean().backward()
    expected = gradients_of(model)

    def program(rank):
        (stage,) = stages_of(whole_model(), [rank], 2)
        ScheduleGPipe(stage, 3, cross_entropy).step(tokens, target=targets)
        for name, grad in gradients_of(stage.submod).items():
            np.testing.assert_allclose(grad, expected[name], rtol=1e-9, atol=1e-12)

    on_ranks(2, program)


def random_orders(chance, ranks, stages, microbatches):
    """Any stages on any ranks, full and split backwards, in any order in which one process could compute them."""
    owners = [*range(ranks), *(chance.randrange(ranks) for _ in range(stages - ranks))]
    chance.shuffle(owners)
    cells = [(stage, m) for stage in range(stages) for m in range(microbatches)]
    backward = {cell: chance.choice([Kind.FULL_BACKWARD, Kind.BACKWARD_INPUT]) for cell in cells}
    needs = {Action(s, Kind.FORWARD, m): [Action(s - 1, Kind.FORWARD, m)] * (s > 0) for s, m in cells}
    for (s, m), kind in backward.items():
        later = [Action(s + 1, backward[s + 1, m], m)] if s + 1 < stages else []
        needs[Action(s, kind, m)] = [Action(s, Kind.FORWARD, m), *later]
        if kind is Kind.BACKWARD_INPUT:
            needs[Action(s, Kind.BACKWARD_WEIGHT, m)] = [Action(s, kind, m)]
    orders = [[] for _ in range(ranks)]
    while needs:
        action = chance.choice([action for action, before in needs.items() if not any(one in needs for one in before)])
        orders[owners[action.stage_index]].append(action)
        del needs[action]
    return orders


@pytest.mark.parametrize("seed", range(40 if "WEFT_DTENSOR_SEEDS" in os.environ else 4))
def test_whatever_the_order_gradients_are_those_of_one_process(seed):
    chance = random.Random(seed)
    ranks, microbatches = chance.randint(1, 3), chance.randint(1, 5)
    orders = random_orders(chance, ranks, 4, microbatches)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()) for _ in range(4)))
    x, target = torch.randn(2, 2 * microbatches, 3, dtype=torch.float64).unbind()
    parts = [copy.deepcopy(part) for part in model.double()]
    torch.nn.functional.mse_loss(model(x), target).backward()

    def program(rank):
        indices = sorted({action.stage_index for action in orders[rank]})
        stages = [PipelineStage(parts[index], index, 4, "cpu") for index in indices]
        schedule = _PipelineScheduleRuntime(stages, microbatches, torch.nn.functional.mse_loss)
        schedule._adopt(with_messages(orders))
        schedule.step(x, target=target)

    on_ranks(ranks, program)
    for part, whole in zip(parts, model, strict=True):
        for own, other in zip(part.parameters(), whole.parameters(), strict=True):
            np.testing.assert_allclose(own.grad, other.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [Schedule1F1B, ScheduleGPipe])
def test_activations_that_are_alive_at_once(kind):
    """1F1B keeps those of as many microbatches as stages follow, and one; GPipe those of all."""
    microbatches = 6

    def program(rank):
        (stage,) = stages_of(whole_model(), [rank], 4)
        results, most = [], [0]

        def watch(module, args, result):
            results.append(weakref.ref(result._read()))
            most[0] = max(most[0], sum(ref() is not None for ref in results))

        stage.submod.register_forward_hook(watch)
        ((tokens, targets),) = batches(1, microbatches)
        kind(stage, microbatches, cross_entropy).step(tokens, target=targets, return_outputs=False)
        return most[0]

    expected = [4, 3, 2, 1] if kind is Schedule1F1B else [microbatches] * 4
    assert on_ranks(4, program) == expected


def test_gradients_of_weights_wait_for_their_action():
    def program(_):
        torch.manual_seed(0)
        linear = torch.nn.Linear(3, 3).double()
        stage = PipelineStage(torch.nn.Sequential(linear, torch.nn.Tanh()), 1, 3, "cpu")
        stage.begin_step(1)
        x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
        results = stage.forward(0, x, {})
        results.sum().item()
        (grad,) = stage.backward_input(0, [torch.ones(2, 3, dtype=torch.float64)])
        grad.numpy()
        assert linear.weight.grad._read().is_pending
        stage.backward_weight(0)
        assert not linear.weight.grad._read().is_pending
        slope = 1 - results.detach() ** 2
        np.testing.assert_allclose(grad, slope @ linear.weight.detach(), rtol=1e-12)
        np.testing.assert_allclose(linear.weight.grad, slope.T @ x.detach(), rtol=1e-12)

    on_ranks(1, program)


def test_evaluation():
    def program(rank):
        model = whole_model()
        (stage,) = stages_of(model, [rank], 2)
        schedule = Schedule1F1B(stage, 2, cross_entropy)
        (batch, small) = batches(1)[0], batches(1, 3)[0]
        for tokens, targets in (batch, small, batch):
            losses = []
            with torch.no_grad():
                result = schedule.eval(tokens, target=targets, losses=losses)
            if rank:
                np.testing.assert_allclose(result, model(tokens).detach(), rtol=1e-12)
                assert [loss.requires_grad for loss in losses] == [False, False]
            assert (result is None, len(losses)) == ((False, 2) if rank else (True, 0))
            schedule.step(tokens, target=targets)
        assert schedule.eval(batch[0], return_outputs=False) is None
        assert all(p.grad is not None for p in stage.submod.parameters())

    on_ranks(2, program)


def test_schedules_from_files(tmp_path):
    def program(rank):
        def stages():
            return stages_of(whole_model(), [rank, rank + 2], 4)

        own = stages()
        schedule = _PipelineScheduleRuntime(own, 4, cross_entropy)
        with pytest.raises(RuntimeError, match=r"^_PipelineScheduleRuntime has no schedule yet; read one by _load_csv"):
            schedule.step()
        source = ScheduleInterleaved1F1B(stages(), 4)
        for format in ("compute_only", "compute_comms"):
            file = tmp_path / f"{format}{rank}.csv"
            schedule._plan = source._plan
            schedule._dump_csv(file, format)
            schedule._load_csv(file, format)
            assert schedule.pipeline_order == source.pipeline_order
            assert schedule.pipeline_order_with_comms == source.pipeline_order_with_comms
        with pytest.raises(ValueError, match=r"has sends or receives; read it with format='compute_comms'$"):
            schedule._load_csv(file)
        return trained_by(schedule, own, 1)

    assert on_ranks(2, program)[1] == pytest.approx(trained(whole_model(), 1), rel=1e-9)


def test_schedules_by_name():
    assert get_schedule_class("1f1b") is Schedule1F1B
    with pytest.raises(ValueError, match=r"^Unknown schedule name 'x'\. The valid options are \['1F1B', "):
        get_schedule_class("x")


# --- with other parallelism ---


@pytest.mark.parametrize("kind", [Schedule1F1B, ScheduleInterleavedZeroBubble])
def test_replicas_of_stages_average_once_in_a_step(kind):
    def program(mesh):
        group, replicas = mesh.get_group("pp"), mesh.get_group("dp")
        index, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp")
        module = DistributedDataParallel(part_of(whole_model(), index, 2), process_group=replicas)
        averages = []
        hook = torch.distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook
        module.register_comm_hook(replicas, lambda state, bucket: averages.append(bucket) or hook(state, bucket))
        stage = PipelineStage(module, index, 2, "cpu", group=group)
        schedule = scheduled(kind, [stage], 2, cross_entropy)
        ((tokens, targets),) = batches(1)
        part, target = tokens.chunk(2)[replica], targets.chunk(2)[replica]
        for count in (1, 2):
            module.zero_grad()
            schedule.step(part, target=target)
            assert sum(bucket.is_last() for bucket in averages) == count
        module.zero_grad()
        with module.no_sync():
            schedule.step(part, target=target)
        assert sum(bucket.is_last() for bucket in averages) == 2
        module.zero_grad()
        schedule.step(part, target=target)
        expected = whole_gradients()
        for name, grad in gradients_of(module.module).items():
            np.testing.assert_allclose(grad, expected[name], rtol=1e-9, atol=1e-12)

    on_mesh((2, 2), program, ("dp", "pp"))


@pytest.mark.parametrize("kind", [ScheduleGPipe, ScheduleInterleavedZeroBubble])
def test_sharded_stages(kind):
    fully_shard = pytest.importorskip("weft.distributed.fsdp").fully_shard

    def program(mesh):
        index, replica = mesh.get_local_rank("pp"), mesh.get_local_rank("dp")
        part = part_of(whole_model(), index, 2)
        for block in part.blocks.values():
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(part, mesh=mesh["dp"])
        stage = PipelineStage(part, index, 2, "cpu", group=mesh.get_group("pp"))
        ((tokens, targets),) = batches(1)
        scheduled(kind, [stage], 2, cross_entropy).step(tokens.chunk(2)[replica], target=targets.chunk(2)[replica])
        expected = whole_gradients()
        for name, parameter in part.named_parameters():
            np.testing.assert_allclose(parameter.grad.full_tensor(), expected[name], rtol=1e-9, atol=1e-12)

    on_mesh((2, 2), program, ("dp", "pp"))


class Passing(torch.nn.Module):
    """A part of the model whose results stay distributed, if another one follows."""

    def __init__(self, part, mesh, placements):
        super().__init__()
        self.part, self._mesh, self._placements = part, mesh, placements

    def forward(self, x):
        result = self.part(x.full_tensor() if isinstance(x, DTensor) else x)
        if self.part.head is not None:
            return result
        return DTensor.from_local(result, self._mesh, [Replicate()]).redistribute(placements=self._placements)


@pytest.mark.parametrize("placement", [None, Replicate(), Shard(0), Shard(2)], ids=str)
def test_tensor_parallel_stages(placement):
    """Each stage on two ranks; stages exchange whole tensors, or distributed ones."""

    def program(mesh):
        index, line = mesh.get_local_rank("pp"), mesh["tp"]
        part = part_of(whole_model(), index, 2)
        split = ColwiseParallel(use_local_output=False)
        plan = {f"blocks.*.attention.{name}": split for name in "qkv"}
        plan |= {"blocks.*.attention.o": RowwiseParallel(), "blocks.*.up": split, "blocks.*.down": RowwiseParallel()}
        parallelize_module(part, line, plan)
        module = part if placement is None else Passing(part, line, [placement])
        stage = PipelineStage(module, index, 2, "cpu", group=mesh.get_group("pp"))
        return trained_by(Schedule1F1B(stage, 2, cross_entropy), [stage], 2, 4)

    expected = trained(whole_model(), 2, 4)
    losses = [own for own in on_mesh((2, 2), program, ("pp", "tp")) if own]
    np.testing.assert_allclose(losses, [expected] * 2, rtol=1e-9)


def test_the_parts_of_the_model_are_the_model():
    model = Language().double()
    parts = [part_of(model, index, 4) for index in range(4)]
    assert sorted(name for part in parts for name in part.state_dict()) == sorted(model.state_dict())
