"""Stages: parts of a model, each of which computes on one rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft._base.device import DeviceLike
from weft._base.device import device as device_class
from weft._base.guards import is_list_or_tuple
from weft._base.pending import Pending
from weft._base.state import ambient, using
from weft._base.types import Args, Kwargs, PyTree
from weft._lazy.flushing import flush_pending
from weft._tensor.gradients import backward
from weft._tensor.tensor import Tensor
from weft.distributed._world import AnyGroup, require_group
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.pipelining._replicas import begin_backward, begin_step, forward_apart
from weft.distributed.pipelining._transfers import map_tensors, tensors_of
from weft.distributed.tensor import DTensor
from weft.errors import ArgumentError, DistError, ShapeError, ValueRangeError
from weft.nn import Module

__all__ = ["PipelineStage"]

GetMesh = Callable[[tuple[str, ...] | None, object], DeviceMesh]


class PipelineStage:
    """The part `stage_index` of a model that `num_stages` stages compute one after another.

    `submodule` is called with what the previous stage has returned: with the elements of a tuple or a list, or else
    with the one object. The first stage takes the arguments of `step`, and each stage the keyword arguments that its
    own rank gives to `step`. Stages exchange tensors, numbers and texts, in tuples, lists and dicts.

    device       where received tensors are put
    input_args   examples of the inputs for one microbatch, and
    output_args  of the results: optional, since tensors say what they are; `RuntimeError` where sizes or types differ
    group        the ranks among which the stages are distributed; by default all of the job
    get_mesh     `get_mesh(mesh_dim_names, None)` returns this rank's mesh of these dims, for distributed tensors that
                 are received; by default it is that of a parameter

    `ValueError` for a stage that there is not.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: DeviceLike,
        input_args: PyTree = None,
        output_args: PyTree = None,
        group: AnyGroup = None,
        get_mesh: GetMesh | None = None,
    ) -> None:
        if not callable(submodule):
            raise ArgumentError(f"a stage computes a module, but got a {type(submodule).__name__}")
        if not 0 <= stage_index < num_stages:
            raise ValueRangeError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.submod = submodule
        self.stage_index = stage_index
        self.num_stages = num_stages
        self.device = device_class(device)
        self.group = require_group(group)
        self.group_rank, self.group_size = self.group.rank(), self.group.size()
        if self.group_size > num_stages:
            raise DistError(
                f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}"
            )
        self._examples = {"input_args": _positional(input_args), "output_args": _positional(output_args)}
        self._get_mesh = get_mesh
        self._running: dict[int, tuple[list[Tensor], PyTree]] = {}
        self._weight_gradients: dict[int, Pending] = {}
        self._backwards_left = 0

    @property
    def is_first(self) -> bool:
        """Whether it takes the arguments of the model."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether it returns the results of the model."""
        return self.stage_index == self.num_stages - 1

    def begin_step(self, microbatches: int) -> None:
        """Forget what an earlier step has left; there will be so many backwards."""
        self._running.clear()
        self._weight_gradients.clear()
        self._backwards_left = microbatches
        begin_step(self.submod)

    def forward(self, microbatch: int, inputs: PyTree, kwargs: Kwargs) -> PyTree:
        """The module's results for a microbatch, which are kept for its backward if gradients are recorded."""
        if not self.is_first:
            inputs = map_tensors(_as_leaf, inputs)
        self._require_like("input_args", inputs, microbatch)
        with forward_apart(self.submod):
            results = self.submod(*_positional(inputs), **kwargs)
        self._require_like("output_args", results, microbatch)
        if ambient().grad:
            self._running[microbatch] = tensors_of(inputs), results
        return results

    def backward(self, microbatch: int, gradients: PyTree, loss: Tensor | None = None) -> list[Tensor | None]:
        """Add the parameters' gradients to theirs; returns those of the inputs.

        It starts from the gradients of the results, or from the loss.
        """
        inputs, results = self._running.pop(microbatch)
        roots = [(loss, None)] if loss is not None else _roots(tensors_of(results), gradients)
        self._backwards_left -= 1
        begin_backward(self.submod, last=not self._backwards_left)
        if roots:
            backward([root for root, _ in roots], [gradient for _, gradient in roots])
        return [] if self.is_first else [x.grad for x in inputs]

    def backward_input(self, microbatch: int, gradients: PyTree, loss: Tensor | None = None) -> list[Tensor | None]:
        """`backward`, of which only what the inputs' gradients need is computed when these are read.

        What is recorded stays pending apart from everything else.
        """
        region = self._weight_gradients[microbatch] = Pending()
        with using(pending=region):
            return self.backward(microbatch, gradients, loss)

    def backward_weight(self, microbatch: int) -> None:
        """Compute what `backward_input` has left: the gradients of parameters."""
        ambient().pending.absorb(self._weight_gradients.pop(microbatch))
        flush_pending()

    def find_mesh(self, mesh_dim_names: tuple[str, ...] | None, shape: tuple[int, ...]) -> DeviceMesh:
        """This rank's mesh of this form: from `get_mesh`, or that of a parameter; `RuntimeError` if there is none."""
        if self._get_mesh is not None:
            return self._get_mesh(mesh_dim_names, None)
        for parameter in self.submod.parameters():
            if isinstance(parameter, DTensor):
                mesh = parameter.device_mesh
                if (mesh.mesh_dim_names, mesh.shape) == (mesh_dim_names, shape):
                    return mesh
        raise DistError(
            f"stage {self.stage_index} receives a DTensor on a mesh of shape {list(shape)} with the dim names "
            f"{mesh_dim_names}, but has no parameter on such a mesh; pass get_mesh to PipelineStage"
        )

    def _require_like(self, name: str, actual: PyTree, microbatch: int) -> None:
        """Raise unless tensors have the sizes and types of the examples."""
        expected, tensors = tensors_of(self._examples[name]), tensors_of(_positional(actual))
        if not expected:
            return
        own, examples = ([(list(x.shape), str(x.dtype)) for x in xs] for xs in (tensors, expected))
        if own != examples:
            raise ShapeError(
                f"stage {self.stage_index}, microbatch {microbatch}: {name} are {examples}, but the stage has "
                f"{own}; give examples for one microbatch, or leave them out"
            )


def _positional(inputs: PyTree) -> Args:
    """What a stage is called with."""
    if inputs is None:
        return ()
    return tuple(inputs) if is_list_or_tuple(inputs) else (inputs,)


def _as_leaf(x: Tensor) -> Tensor:
    """An input as a leaf of this stage's tape."""
    return x.detach().requires_grad_(x.requires_grad)


def _roots(results: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
    """The results that have gradients, with these."""
    return [(x, grad) for x, grad in zip(results, gradients, strict=True) if grad is not None and x.requires_grad]
