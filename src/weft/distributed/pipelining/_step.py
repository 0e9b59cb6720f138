"""Running a plan: one step of one rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from weft._base.types import PyTree
from weft._lazy.flushing import flush_pending
from weft._tensor.tensor import Tensor
from weft.distributed.pipelining._actions import Action, Kind
from weft.distributed.pipelining._transfers import Transfers, map_tensors
from weft.distributed.pipelining.microbatch import Arguments
from weft.distributed.pipelining.stage import PipelineStage

_DOING = {
    Kind.FORWARD: "the forward",
    Kind.FULL_BACKWARD: "the backward",
    Kind.BACKWARD_INPUT: "the backward to the inputs",
    Kind.BACKWARD_WEIGHT: "the backward to the weights",
    Kind.SEND_F: "sending the results",
    Kind.SEND_B: "sending the gradients",
    Kind.RECV_F: "receiving the inputs",
    Kind.RECV_B: "receiving the gradients",
}


@dataclass
class Step:
    """What one step of a schedule has on one rank, while its actions run.

    stages     this rank's stages, by index
    ranks      the rank in the group of each stage
    arguments  the positional arguments of the model and the keyword arguments of this rank's stages, by microbatch
    loss       the loss of a microbatch from the model's results; None without one
    scale      the factor of losses from which gradients start
    inputs     what stages wait for, by stage and microbatch: what the previous stage has returned
    gradients  the gradients of stages' results, likewise
    outputs    the model's results without gradients, by microbatch
    losses     the losses, by microbatch
    """

    stages: Mapping[int, PipelineStage]
    ranks: Mapping[int, int]
    transfers: Transfers
    arguments: Sequence[Arguments]
    loss: Callable[[PyTree, int], Tensor] | None
    scale: float
    keeps_outputs: bool
    inputs: dict[tuple[int, int], PyTree] = field(default_factory=dict[tuple[int, int], PyTree])
    gradients: dict[tuple[int, int], PyTree] = field(default_factory=dict[tuple[int, int], PyTree])
    outputs: dict[int, PyTree] = field(default_factory=dict[int, PyTree])
    losses: dict[int, Tensor] = field(default_factory=dict[int, Tensor])

    def run(self, actions: Sequence[Action]) -> None:
        """Run the actions in order. Errors get a note that says what was being done, for which stage and microbatch."""
        for stage in self.stages.values():
            stage.begin_step(len(self.arguments))
        for action in actions:
            try:
                _RUN[action.computation_type](self, action.stage_index, action.microbatch_index)
            except Exception as error:
                doing = _DOING[action.computation_type]
                error.add_note(f"in {doing} of stage {action.stage_index} for microbatch {action.microbatch_index}")
                raise
        self.transfers.finish()

    def forward(self, index: int, m: int) -> None:
        stage, (args, kwargs) = self.stages[index], self.arguments[m]
        results = stage.forward(m, args if stage.is_first else self.inputs.pop((index, m)), kwargs)
        if not stage.is_last:
            self.inputs[index + 1, m] = results
            return
        if self.keeps_outputs:
            self.outputs[m] = map_tensors(Tensor.detach, results)
        if self.loss is not None:
            self.losses[m] = self.loss(results, m)

    def full_backward(self, index: int, m: int) -> None:
        self.gradients[index - 1, m] = self.stages[index].backward(m, *self._start(index, m))
        flush_pending()

    def backward_input(self, index: int, m: int) -> None:
        self.gradients[index - 1, m] = self.stages[index].backward_input(m, *self._start(index, m))

    def _start(self, index: int, m: int) -> tuple[PyTree, Tensor | None]:
        """What a backward starts from: the gradients of the stage's results, or the loss."""
        if not self.stages[index].is_last:
            return self.gradients.pop((index, m)), None
        loss, self.losses[m] = self.losses[m], self.losses[m].detach()
        return None, loss * self.scale

    def backward_weight(self, index: int, m: int) -> None:
        self.stages[index].backward_weight(m)

    def send_f(self, index: int, m: int) -> None:
        self.transfers.send(self.inputs.pop((index + 1, m)), self.ranks[index + 1], self._tag(index, m, 0))

    def send_b(self, index: int, m: int) -> None:
        self.transfers.send(self.gradients.pop((index - 1, m)), self.ranks[index - 1], self._tag(index, m, 1))

    def receive_f(self, index: int, m: int) -> None:
        self.inputs[index, m] = self._received(index, index - 1, m, 0)

    def receive_b(self, index: int, m: int) -> None:
        self.gradients[index, m] = self._received(index, index + 1, m, 1)

    def _received(self, index: int, source: int, m: int, backward: int) -> PyTree:
        tag = self._tag(source, m, backward)
        return self.transfers.receive(self.ranks[source], tag, self.stages[index].find_mesh)

    def _tag(self, source: int, m: int, backward: int) -> int:
        """The tag of what a stage sends for a microbatch, forwards or backwards."""
        return 2 * (source * len(self.arguments) + m) + backward


_RUN: dict[Kind, Callable[[Step, int, int], None]] = {
    Kind.FORWARD: Step.forward,
    Kind.FULL_BACKWARD: Step.full_backward,
    Kind.BACKWARD_INPUT: Step.backward_input,
    Kind.BACKWARD_WEIGHT: Step.backward_weight,
    Kind.SEND_F: Step.send_f,
    Kind.SEND_B: Step.send_b,
    Kind.RECV_F: Step.receive_f,
    Kind.RECV_B: Step.receive_b,
}
