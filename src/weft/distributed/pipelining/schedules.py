"""Schedules: how microbatches go through the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from weft._base.state import ambient, using
from weft._base.types import Arg, Args, Kwargs, PyTree
from weft._tensor.tensor import Tensor
from weft.distributed._objects import all_gather_object
from weft.distributed.pipelining import _orders
from weft.distributed.pipelining._actions import Action, Kind, Orders, read_orders, write_orders
from weft.distributed.pipelining._plan import check, computations_of, forwards_of, rank_by_stage, with_messages
from weft.distributed.pipelining._step import Step
from weft.distributed.pipelining._transfers import Transfers
from weft.distributed.pipelining.microbatch import (
    Arguments,
    TensorChunkSpec,
    merge_chunks,
    split_args_kwargs_into_chunks,
)
from weft.distributed.pipelining.stage import PipelineStage
from weft.errors import ArgumentError, DistError, GradientError, OptionError, ValueRangeError

__all__ = [
    "Action",
    "Kind",
    "Orders",
    "PipelineScheduleMulti",
    "PipelineScheduleSingle",
    "Schedule1F1B",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
    "get_schedule_class",
]

Order = Callable[[int, int, int], Orders]
"""The computations of each rank, from the numbers of ranks, of stages on each, and of microbatches."""


class _PipelineSchedule:
    """What all schedules do: divide batches, run the actions of this rank, and put results together."""

    order: Order | None = None

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None,
        args_chunk_spec: Sequence[TensorChunkSpec | None] | None,
        kwargs_chunk_spec: Mapping[str, TensorChunkSpec | None] | None,
        output_merge_spec: PyTree,
        scale_grads: bool,
    ) -> None:
        _require_stages(stages)
        if n_microbatches < 1:
            raise ValueRangeError(f"n_microbatches must be at least 1, but got {n_microbatches}")
        self.scale_grads = scale_grads
        self._stages = {stage.stage_index: stage for stage in stages}
        self._n_microbatches = n_microbatches
        self._loss_fn = loss_fn
        self._specs = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec = output_merge_spec
        first = stages[0]
        self._group, self._num_stages = first.group, first.num_stages
        self._transfers = Transfers(first.group, first.device)
        self._agreed = False
        self._plan: Orders = []
        order = type(self).order
        if order is not None:
            local = self._num_stages // first.group_size
            self._adopt(with_messages(order(first.group_size, local, n_microbatches)))

    def _adopt(self, plan: Orders) -> None:
        """Take a plan, if it is one for these stages."""
        check(plan, self._n_microbatches, training=self._loss_fn is not None)
        ranks, rank = rank_by_stage(plan), self._group.rank()
        own = sorted(stage for stage, other in ranks.items() if other == rank)
        size, local_stages = self._group.size(), sorted(self._stages)
        if (len(plan), len(ranks), own) != (size, self._num_stages, local_stages):
            raise ValueRangeError(
                f"{type(self).__name__}: rank {rank} of {size} has the stages {local_stages} of {self._num_stages}, "
                f"but the schedule has {len(ranks)} stages on {len(plan)} ranks, and {own} on this one"
            )
        self._plan, self._ranks = plan, ranks
        self._forward_plan = with_messages(forwards_of(computations_of(plan)))

    @property
    def pipeline_order(self) -> dict[int, list[Action]]:
        """The computations of each rank, in order."""
        return dict(enumerate(computations_of(self._plan)))

    @property
    def pipeline_order_with_comms(self) -> dict[int, list[Action]]:
        """The computations, sends and receives of each rank, in order."""
        return dict(enumerate(self._plan))

    def step(
        self,
        *args: Arg,
        target: PyTree = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        loss_kwargs: Mapping[str, Arg] | None = None,
        **kwargs: Arg,
    ) -> PyTree:
        """Run the forwards and, with a loss function, the backwards of a batch, in microbatches.

        Every rank of the group must call it. The rank of the first stage gives `args`; that of the last one gives
        `target`, whose microbatches follow the results as arguments of the loss function. There, `losses` is filled
        with the losses of the microbatches, and the results are returned unless `return_outputs` is False; other ranks
        return None. Gradients are added to `grad` of the parameters, as of the mean of the losses with `scale_grads`,
        else of their sum. If it raises on one rank, it raises on all, and the group cannot be used any more.
        """
        backward = self._loss_fn is not None
        if backward and not ambient().grad:
            raise GradientError("step() needs gradients, which are switched off here; call eval() for forwards alone")
        return self._run(
            args, kwargs, target, losses, return_outputs=return_outputs, loss_kwargs=loss_kwargs, backward=backward
        )

    def eval(
        self,
        *args: Arg,
        target: PyTree = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        loss_kwargs: Mapping[str, Arg] | None = None,
        **kwargs: Arg,
    ) -> PyTree:
        """Run the forwards of a batch without gradients; otherwise as `step`. The module's mode is not changed."""
        return self._run(
            args, kwargs, target, losses, return_outputs=return_outputs, loss_kwargs=loss_kwargs, backward=False
        )

    def _run(
        self,
        args: Args,
        kwargs: Kwargs,
        target: PyTree,
        losses: list[Tensor] | None,
        *,
        return_outputs: bool,
        loss_kwargs: Mapping[str, Arg] | None,
        backward: bool,
    ) -> PyTree:
        if not self._plan:
            raise OptionError(f"{type(self).__name__} has no schedule yet; read one by _load_csv(file)")
        _require_list(losses)
        if self._loss_fn is None and (target is not None or losses is not None):
            raise OptionError(f"{type(self).__name__} has no loss_fn, so it takes neither target nor losses")
        try:
            with using(grad=backward):
                step = self._new_step(args, kwargs, target, loss_kwargs or {}, return_outputs, backward=backward)
                self._agree()
                step.run((self._plan if backward else self._forward_plan)[self._group.rank()])
        except BaseException as error:
            notes = "".join(f" {note}" for note in getattr(error, "__notes__", ()))
            # The other ranks wait for this one's messages; they shall raise what has happened here instead of a
            # timeout.
            self._group.abort(f"{type(error).__name__}{notes}: {error}")
            raise
        in_order = range(self._n_microbatches)
        if losses is not None:
            losses[:] = [step.losses[m] for m in in_order if m in step.losses]
        return merge_chunks([step.outputs[m] for m in in_order], self._output_merge_spec) if step.outputs else None

    def _new_step(
        self,
        args: Args,
        kwargs: Kwargs,
        target: PyTree,
        loss_kwargs: Mapping[str, Arg],
        keeps_outputs: bool,
        *,
        backward: bool,
    ) -> Step:
        has_last = self._num_stages - 1 in self._stages
        if backward and has_last and target is None:
            raise OptionError("the rank of the last stage must pass target to step(), for loss_fn(output, target)")
        targets = [part for (part,), _ in self._parts((target,), {})] if has_last and target is not None else None
        return Step(
            self._stages,
            self._ranks,
            self._transfers,
            self._parts(args if 0 in self._stages else (), kwargs, *self._specs),
            self._loss_of(targets, loss_kwargs),
            1 / self._n_microbatches if self.scale_grads else 1,
            keeps_outputs,
        )

    def _parts(
        self,
        args: Args,
        kwargs: Kwargs,
        args_spec: Sequence[TensorChunkSpec | None] | None = None,
        kwargs_spec: Mapping[str, TensorChunkSpec | None] | None = None,
    ) -> list[Arguments]:
        """The arguments of each microbatch. Specs of arguments that other ranks give are not used."""
        count = self._n_microbatches
        args_split, kwargs_split = split_args_kwargs_into_chunks(
            args, kwargs, count, args_spec if args else None, kwargs_spec if kwargs else None
        )
        if len(args_split) != count:
            raise ValueRangeError(f"a batch of {len(args_split)} cannot be divided into {count} microbatches")
        return list(zip(args_split, kwargs_split, strict=True))

    def _loss_of(
        self, targets: list[PyTree] | None, options: Mapping[str, Arg]
    ) -> Callable[[PyTree, int], Tensor] | None:
        loss_fn = self._loss_fn
        if loss_fn is None or targets is None:
            return None
        return lambda results, m: loss_fn(results, targets[m], **options)

    def _agree(self) -> None:
        """Before the first step, require that all ranks of the group have the same schedule, with and without loss."""
        if self._agreed:
            return
        own = type(self).__name__, self._plan, "with" if self._loss_fn is not None else "without"
        others: list[tuple[str, Orders, str]] = [own] * self._group.size()
        # Ranks with different orders would wait for each other's messages for ever. Compared once, as a plan does not
        # change.
        all_gather_object(others, own, self._group)
        for rank, other in enumerate(others):
            if other != others[0]:
                name, plan, with_loss = other
                first, first_plan, first_with_loss = others[0]
                raise DistError(
                    "all ranks of a pipeline need the same schedule, microbatches and loss_fn, but rank 0 of the group "
                    f"has {_described(first, first_plan, first_with_loss)}, and rank {rank} has "
                    f"{_described(name, plan, with_loss)}"
                )
        self._agreed = True


def _described(name: str, plan: Orders, with_loss: str) -> str:
    microbatches = sum(action.stage_index == 0 and action.computation_type is Kind.FORWARD for action in plan[0])
    return f"{name} with {microbatches} microbatches, {with_loss} loss_fn"


def _require_list(losses: object) -> None:
    if losses is not None and not isinstance(losses, list):
        raise ArgumentError(f"losses must be a list but got a {type(losses)}")


def _are_stages(stages: Iterable[object]) -> bool:
    return all(isinstance(stage, PipelineStage) for stage in stages)


def _require_stages(stages: Sequence[PipelineStage]) -> None:
    if not stages or not _are_stages(stages):
        raise ArgumentError(f"a schedule takes at least one PipelineStage, but got {stages!r}")
    first = stages[0]
    for stage in stages[1:]:
        if (stage.num_stages, stage.group) != (first.num_stages, first.group):
            raise ValueRangeError("the stages of a schedule must belong to one pipeline: one num_stages, one group")
    if len({stage.stage_index for stage in stages}) < len(stages):
        raise ValueRangeError(f"stages must be different, but got {[stage.stage_index for stage in stages]}")


class PipelineScheduleSingle(_PipelineSchedule):
    """A schedule for one stage on each rank; stage i is on rank i.

    stage              this rank's stage
    n_microbatches     into so many microbatches batches are divided
    loss_fn            the loss from a microbatch's results and target; without it there are no backwards
    args_chunk_spec    the dim along which each positional argument is divided; by default the first
    kwargs_chunk_spec  the same for keyword arguments
    output_merge_spec  the dim along which results are put together; by default the first
    scale_grads        whether gradients are those of the mean of the microbatches' losses, instead of their sum

    A subclass has `order`, a function that returns the computations of each rank. `ValueError` for a stage that its
    schedule does not have on this rank, and for numbers of microbatches that it does not allow.
    """

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Sequence[TensorChunkSpec | None] | None = None,
        kwargs_chunk_spec: Mapping[str, TensorChunkSpec | None] | None = None,
        output_merge_spec: PyTree = None,
        scale_grads: bool = True,
    ) -> None:
        _require_stages([stage])
        if stage.num_stages != stage.group_size:
            raise ValueRangeError(
                f"{type(self).__name__} has one stage on each rank, but there are {stage.num_stages} stages on "
                f"{stage.group_size} ranks; use a schedule for several stages, such as ScheduleInterleaved1F1B"
            )
        super().__init__(
            [stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads
        )


class PipelineScheduleMulti(_PipelineSchedule):
    """A schedule for several stages on each rank, equally many; otherwise as `PipelineScheduleSingle`."""

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Sequence[TensorChunkSpec | None] | None = None,
        kwargs_chunk_spec: Mapping[str, TensorChunkSpec | None] | None = None,
        output_merge_spec: PyTree = None,
        scale_grads: bool = True,
    ) -> None:
        super().__init__(
            stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads
        )


class ScheduleGPipe(PipelineScheduleSingle):
    """All forwards, then all backwards."""

    order = staticmethod(_orders.gpipe)


class Schedule1F1B(PipelineScheduleSingle):
    """Forwards and backwards alternate; stage s keeps the activations of at most num_stages - s microbatches.

    There must be at least as many microbatches as stages.
    """

    order = staticmethod(_orders.one_forward_one_backward)


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """Each rank runs all microbatches through one of its stages before the next; stages go round the ranks."""

    order = staticmethod(_orders.looped_bfs)


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """1F1B with several stages on each rank, which go round the ranks; idle times are shorter.

    The number of microbatches must be a multiple of max(1, microbatches // ranks).
    """

    order = staticmethod(_orders.interleaved)


class ScheduleInterleavedZeroBubble(PipelineScheduleMulti):
    """`ScheduleInterleaved1F1B` whose backwards compute gradients of weights later, where ranks would be idle."""

    order = staticmethod(_orders.interleaved_zero_bubble)


class ScheduleZBVZeroBubble(PipelineScheduleMulti):
    """Like `ScheduleInterleavedZeroBubble`, with two stages on each rank: of N ranks, rank r has r and 2N - 1 - r."""

    order = staticmethod(_orders.zero_bubble_v)


class _PipelineScheduleRuntime(PipelineScheduleMulti):
    """A schedule that is read from a file, with one row for each rank."""

    def _load_csv(
        self, filename: str | Path, format: Literal["compute_only", "compute_comms"] = "compute_only"
    ) -> None:
        """Read the actions of all ranks; `compute_only` files have no sends and receives, which are added.

        `ValueError` if a computation is missing or the ranks would wait for ever.
        """
        orders = read_orders(filename)
        if format not in ("compute_only", "compute_comms"):
            raise ValueRangeError(f'format must be "compute_only" or "compute_comms", but got {format!r}')
        if format == "compute_only" and computations_of(orders) != orders:
            raise ValueRangeError(f"{filename} has sends or receives; read it with format='compute_comms'")
        self._adopt(with_messages(orders) if format == "compute_only" else orders)

    def _dump_csv(
        self, filename: str | Path, format: Literal["compute_only", "compute_comms"] = "compute_comms"
    ) -> None:
        """Write the actions of all ranks, with or without sends and receives."""
        write_orders(computations_of(self._plan) if format == "compute_only" else self._plan, filename)


PipelineScheduleRuntime = _PipelineScheduleRuntime  # PyTorch has it as a private class

_BY_NAME: dict[str, type[_PipelineSchedule]] = {
    "1F1B": Schedule1F1B,
    "GPipe": ScheduleGPipe,
    "Interleaved1F1B": ScheduleInterleaved1F1B,
    "LoopedBFS": ScheduleLoopedBFS,
    "InterleavedZeroBubble": ScheduleInterleavedZeroBubble,
    "ZBVZeroBubble": ScheduleZBVZeroBubble,
}


def get_schedule_class(schedule_name: str) -> type[_PipelineSchedule]:
    """The class of a schedule by its name without "Schedule", in any case; `ValueError` for an unknown one."""
    for name, kind in _BY_NAME.items():
        if name.lower() == schedule_name.lower():
            return kind
    raise ValueRangeError(f"Unknown schedule name '{schedule_name}'. The valid options are {list(_BY_NAME)}")
