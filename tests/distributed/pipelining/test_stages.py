"""What stages take and pass on, and bad input."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch
from tests.distributed.pipelining.jobs import on_ranks, one_stage
from weft import nn
from weft.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleZBVZeroBubble,
    TensorChunkSpec,
)


class Function(nn.Module):
    """A function as a module, with one parameter."""

    def __init__(self, function):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

    def forward(self, *args, **kwargs):
        return self.function(self.weight, *args, **kwargs)


def numbers(*shape):
    return torch.arange(float(np.prod(shape)), dtype=torch.float64).reshape(shape) + 1


def mean_of_difference(results, target):
    return (results - target).mean()


def run(functions, args=(), kwargs=None, target=None, kwargs_specs=None, stage_options=None, **options):
    """Results and gradients of weights of two stages in a pipeline.

    `kwargs`, their specs and the options of stages are by rank.
    """

    def program(rank):
        module = Function(functions[rank])
        loss_fn = None if target is None else mean_of_difference
        own = None if stage_options is None else stage_options[rank]
        specs = None if kwargs_specs is None else kwargs_specs[rank]
        schedule = one_stage(
            module, rank, len(functions), 2, loss_fn, stage_options=own, kwargs_chunk_spec=specs, **options
        )
        own_kwargs = {} if kwargs is None else kwargs[rank]
        result = schedule.step(*args, target=target, **own_kwargs)
        return result, None if module.weight.grad is None else module.weight.grad.item()

    return on_ranks(len(functions), program)


def errors_of(count, program):
    """What `program(rank)` raises on each rank, with its notes; None where it does not."""

    def body(rank):
        try:
            program(rank)
        except Exception as error:
            return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        return None

    return on_ranks(count, body)


def test_several_tensors_go_from_stage_to_stage():
    """A tuple is taken apart; some results need gradients, some cannot have any, one is not used, one is empty."""
    x, index = numbers(4, 2), torch.tensor([[1], [0], [1], [0]])

    def first(w, x, index):
        return w * x, index, x.detach() > 2, w * 7, x[:, :0]

    def second(w, x, index, large, unused, empty):
        assert (index.dtype, large.dtype, empty.shape) == (torch.int64, torch.bool, (2, 0))
        assert (x.requires_grad, large.requires_grad, unused.requires_grad) == (True, False, True)
        return torch.where(large, x, 0).gather(1, index) * w

    target = torch.zeros(4, 1, dtype=torch.float64)
    (_, grad_1), (result, grad_2) = run([first, second], (x, index), target=target)
    w, v = (torch.tensor(2.0, dtype=torch.float64, requires_grad=True) for _ in range(2))
    expected = torch.where(x > 2, w * x, 0).gather(1, index) * v
    expected.mean().backward()
    assert torch.equal(result, expected.detach())
    assert (grad_1, grad_2) == (w.grad.item(), v.grad.item())


def test_dicts_and_what_is_no_tensor():
    def first(w, inputs, factor=1):
        return {"x": inputs["x"] * w * factor, "more": [inputs["y"], None], "name": "layer", "factor": factor}

    def second(w, inputs):
        assert (inputs["name"], inputs["factor"], inputs["more"][1]) == ("layer", 3, None)
        return {"sum": inputs["x"] + inputs["more"][0] * w, "name": inputs["name"]}

    x, y = numbers(4, 2), numbers(4)
    kwargs = [{"factor": 3}, {}]
    results = run([first, second], ({"x": x, "y": y[:, None]},), kwargs)
    assert results[0][0] is None
    assert torch.equal(results[1][0]["sum"], x * 6 + y[:, None] * 2)
    assert results[1][0]["name"] == "layer"


def test_types_and_names_of_dims_stay():
    def first(w, x):
        return x.to(torch.bfloat16) * w.to(torch.bfloat16), (x * w).rename("batch", "width"), torch.complex(x, -x)

    def second(w, half, named, pair):
        assert (half.dtype, named.names, pair.dtype) == (torch.bfloat16, ("batch", "width"), torch.complex128)
        return (half.double() + named.sum("width").rename(None)[:, None] + pair.imag) * w

    x = numbers(4, 2)
    (_, grad), (result, _) = run([first, second], (x,), target=x)
    assert torch.equal(result, (x * 2 + 2 * x.sum(1, keepdim=True) - x) * 2)
    assert grad == 2 * (x + x.sum(1, keepdim=True)).mean().item()


def test_keyword_arguments_are_those_of_a_rank_and_divided_as_specs_say():
    """Columns of `x` go with rows of `scale`; results are put together along the last dim."""

    def first(w, x, scale):
        assert (x.shape, scale.shape) == ((3, 2), (2, 3))
        return x * w * scale.T

    def second(w, x, bias, offset):
        assert (bias.shape, offset.shape) == ((2, 1), (3,))
        return x * w + bias.T + offset[:, None]

    x, scale, bias, offset = numbers(3, 4), numbers(4, 3), numbers(4, 1), numbers(3)
    results = run(
        [first, second],
        (x,),
        [{"scale": scale}, {"bias": bias, "offset": offset}],
        args_chunk_spec=TensorChunkSpec.from_tuple((1,)),
        output_merge_spec=TensorChunkSpec(1),
        kwargs_specs=[{"scale": TensorChunkSpec(0)}, {"bias": TensorChunkSpec(0), "offset": None}],
    )
    assert torch.equal(results[1][0], x * scale.T * 4 + bias.T + offset[:, None])


def test_gradients_reach_the_arguments_and_frozen_stages_get_none():
    x = numbers(4, 2).requires_grad_()

    def program(rank):
        module = Function((lambda w, x: x * w) if rank else (lambda w, x: x * 3))
        schedule = one_stage(module, rank, 2, 2, mean_of_difference, Schedule1F1B)
        schedule.step(*([] if rank else [x]), target=torch.zeros(4, 2, dtype=torch.float64))
        frozen = one_stage(Function(lambda w, x: x * w), rank, 2, 2, mean_of_difference)
        frozen._stages[rank].submod.weight.requires_grad_(rank == 1)
        frozen.step(x.detach(), target=torch.zeros(4, 2, dtype=torch.float64))
        return frozen._stages[rank].submod.weight.grad

    grads = on_ranks(2, program)
    assert torch.equal(x.grad, torch.full((4, 2), 2 * 3 / 8, dtype=torch.float64))
    assert grads[0] is None
    assert grads[1] is not None


def test_sizes_may_change_between_steps():
    def program(rank):
        module = Function(lambda w, x: (x * w).cumsum(1))
        schedule = one_stage(module, rank, 2, 2, mean_of_difference)
        results = []
        for rows, columns in ((4, 2), (4, 2), (3, 2), (4, 5), (4, 2)):
            x = numbers(rows, columns)
            results.append(schedule.step(x, target=torch.zeros(rows, columns, dtype=torch.float64)))
            if rank:
                assert torch.equal(results[-1], x.cumsum(1).cumsum(1) * 4)
        return len(results)

    assert on_ranks(2, program) == [5, 5]


def test_examples_are_compared_with_what_comes():
    x = numbers(4, 2)
    examples = [{"input_args": x[:2], "output_args": x[:2]}, {"input_args": (x[:2],)}]
    double = lambda w, x: x * w  # noqa: E731
    assert torch.equal(run([double, double], (x,), stage_options=examples)[1][0], x * 4)


def test_inputs_unlike_the_examples_are_refused():
    def program(rank):
        x = numbers(4, 2)
        options = {"input_args": x[:2].float() if rank else x[:2]}
        one_stage(Function(lambda w, x: x * w), rank, 2, 2, stage_options=options).step(x)

    assert errors_of(2, program)[1] == (
        "ShapeError: stage 1, microbatch 0: input_args are [([2, 2], 'torch.float32')], but the stage has "
        "[([2, 2], 'torch.float64')]; give examples for one microbatch, or leave them out\n"
        "in the forward of stage 1 for microbatch 0"
    )


# --- errors ---


@pytest.mark.parametrize("place", ["forward", "backward", "loss"])
def test_an_error_on_one_rank_ends_all(place):
    """No rank hangs: the others' errors name the rank, and say what has failed there."""

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise KeyError("broken")

    def function(w, x):
        if place == "forward":
            raise KeyError("broken")
        return Failing.apply(x * w)

    def loss(results, target):
        raise KeyError("broken")

    def program(rank):
        broken = {"forward": 1, "backward": 1, "loss": 2}[place]
        module = Function(function if rank == broken and place != "loss" else lambda w, x: x * w)
        loss_fn = loss if place == "loss" else mean_of_difference
        schedule = one_stage(module, rank, 3, 3, loss_fn, Schedule1F1B)
        schedule.step(numbers(6, 2), target=numbers(6, 2))

    broken = 2 if place == "loss" else 1
    errors = errors_of(3, program)
    where = f"in the {'backward' if place == 'backward' else 'forward'} of stage {broken} for microbatch 0"
    assert errors[broken] == f"KeyError: 'broken'\n{where}"
    for rank in {0, 1, 2} - {broken}:
        assert errors[rank].startswith("DistBackendError: ")
        assert f"rank {broken} gave up: rank {broken} has aborted the group 'default': KeyError {where}" in errors[rank]


def test_ranks_with_different_schedules_are_told():
    def microbatches(rank):
        one_stage(Function(lambda w, x: x), rank, 2, 2 + rank).step(numbers(6))

    text = (
        "DistError: all ranks of a pipeline need the same schedule, microbatches and loss_fn, but rank 0 of the group "
        "has ScheduleGPipe with 2 microbatches, without loss_fn, and rank 1 has ScheduleGPipe with 3 microbatches, "
        "without loss_fn"
    )
    assert errors_of(2, microbatches) == [text] * 2

    def losses(rank):
        loss_fn = mean_of_difference if rank else None
        one_stage(Function(lambda w, x: x), rank, 2, 2, loss_fn).step(numbers(6), target=numbers(6) if rank else None)

    assert all("with 2 microbatches, without loss_fn, and rank 1" in error for error in errors_of(2, losses))


def test_bad_stages():
    def program(rank):
        module = nn.Linear(2, 2)
        for index in (-1, 2):
            with pytest.raises(ValueError, match=rf"^Stage index {index} is out of range of 2$"):
                PipelineStage(module, index, 2, "cpu")
        with pytest.raises(RuntimeError, match=r"^Pipeline group size 2 cannot be larger than number of stages 1$"):
            PipelineStage(module, 0, 1, "cpu")
        with pytest.raises(TypeError, match=r"^a stage computes a module, but got a int$"):
            PipelineStage(1, 0, 2, "cpu")
        with pytest.raises(
            RuntimeError, match=r"^stage 0 receives a DTensor on a mesh of shape \[2\] with the dim names"
        ):
            PipelineStage(module, 0, 2, "cpu").find_mesh(("tp",), (2,))

    on_ranks(2, program)


def test_bad_schedules():
    def program(rank):
        module = nn.Linear(2, 2)

        def stages(*indices, count=4):
            return [PipelineStage(module, index, count, "cpu") for index in indices]

        with pytest.raises(ValueError, match=r"has one stage on each rank, but there are 4 stages on 2 ranks; use a"):
            ScheduleGPipe(stages(rank)[0], 2)
        with pytest.raises(
            ValueError, match=r"^ScheduleGPipe: rank . of 2 has the stages \[.\] of 2, but the schedule"
        ):
            ScheduleGPipe(stages(1 - rank, count=2)[0], 2)
        with pytest.raises(
            ValueError, match=r"^Number of microbatches \(1\) must be greater than or equal to the number"
        ):
            Schedule1F1B(stages(rank, count=2)[0], 1)
        with pytest.raises(ValueError, match=r"^n_microbatches must be at least 1, but got 0$"):
            ScheduleGPipe(stages(rank, count=2)[0], 0)
        with pytest.raises(ValueError, match=r"and \[., .\] on this one$"):
            ScheduleZBVZeroBubble(stages(rank, rank + 2), 4)
        with pytest.raises(ValueError, match=r"^stages must be different, but got "):
            ScheduleInterleaved1F1B(stages(rank, rank), 4)
        with pytest.raises(ValueError, match=r"must belong to one pipeline: one num_stages, one group$"):
            ScheduleInterleaved1F1B([*stages(rank), *stages(rank + 2, count=6)], 4)
        with pytest.raises(TypeError, match=r"^a schedule takes at least one PipelineStage, but got \[\]$"):
            ScheduleInterleaved1F1B([], 4)

    on_ranks(2, program)


def test_bad_steps():
    def program(_):
        x = numbers(4, 2)
        stage = PipelineStage(Function(lambda w, x: x * w), 0, 1, "cpu")
        without = ScheduleGPipe(stage, 2)
        for options in ({"target": x}, {"losses": []}):
            with pytest.raises(
                RuntimeError, match=r"^ScheduleGPipe has no loss_fn, so it takes neither target nor losses$"
            ):
                without.step(x, **options)
        schedule = ScheduleGPipe(stage, 2, mean_of_difference)
        with pytest.raises(TypeError, match=r"^losses must be a list but got a <class 'tuple'>$"):
            schedule.step(x, target=x, losses=())
        with (
            torch.no_grad(),
            pytest.raises(RuntimeError, match=r"switched off here; call eval\(\) for forwards alone$"),
        ):
            schedule.step(x, target=x)

    on_ranks(1, program)


@pytest.mark.parametrize(
    ("batch", "options", "text"),
    [
        (4, {}, "OptionError: the rank of the last stage must pass target to step(), for loss_fn(output, target)"),
        (1, {"target": torch.zeros(1)}, "ValueRangeError: a batch of 1 cannot be divided into 2 microbatches"),
    ],
)
def test_bad_arguments_of_one_rank_end_all(batch, options, text):
    def program(rank):
        schedule = one_stage(Function(lambda w, x: x * w), rank, 2, 2, mean_of_difference)
        schedule.step(*([] if rank else [numbers(batch, 2)]), **(options if rank else {}))

    errors = errors_of(2, program)
    assert text in errors
    assert all("has aborted the group 'default': " in error for error in errors if error != text)


def test_what_stages_cannot_exchange():
    def program(rank):
        module = Function((lambda w, x: x) if rank else (lambda w, x: {1, 2}))
        one_stage(module, rank, 2, 2).step(numbers(4, 2))

    first = errors_of(2, program)[0]
    assert first.startswith(
        "ArgumentError: stages exchange tensors, numbers and texts in tuples, lists and dicts, but got"
    )
    assert first.endswith("in sending the results of stage 0 for microbatch 0")
