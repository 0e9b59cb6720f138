"""Styles: how a module's parameters, inputs and outputs are distributed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from weft._base.guards import is_tuple
from weft._base.types import Args, Kwargs, Result
from weft._tensor.tensor import Tensor
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor._api import distribute_module, distribute_tensor
from weft.distributed.tensor._dtensor import DTensor
from weft.distributed.tensor._placements import Placement, Replicate, Shard
from weft.errors import PreconditionError, UnsupportedError, ValueRangeError
from weft.nn import Embedding, Linear, Module, Parameter


class ParallelStyle(ABC):
    """What `parallelize_module` does to a module."""

    @abstractmethod
    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None = 0) -> Module:
        """Distribute the module over a mesh of one dim, in place."""

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        return self.apply(module, device_mesh)


def _distributed(
    x: object, mesh: DeviceMesh, layout: Placement, desired: Placement, features: int | None = None
) -> Result:
    """A tensor with the placement `desired`; a plain one is a part of a tensor with the placement `layout`.

    `features` is the size of its last dim, if that is known; so its parts need not have one size.
    """
    if not isinstance(x, Tensor):
        return x
    is_split = isinstance(layout, Shard) and layout.dim in (-1, x.ndim - 1)
    shape = None if features is None or not is_split else (*x.shape[:-1], features)
    whole = x if isinstance(x, DTensor) else DTensor.from_local(x, mesh, [layout], shape=shape)
    return whole.redistribute(placements=[desired])


def _output(x: object, layout: Placement, use_local_output: bool) -> object:
    """An output with this placement or, if wanted, this rank's part of it."""
    if not isinstance(x, DTensor):
        return x
    moved = x.redistribute(placements=[layout])
    return moved.to_local() if use_local_output else moved


class _SplitParallel(ParallelStyle):
    """A style of linear layers and embeddings, which splits their weights."""

    weights: ClassVar[Mapping[type[Module], Placement]]
    biases: ClassVar[Placement]
    desired: ClassVar[Mapping[type[Module], Placement]]

    def __init__(self, input_layout: Placement, output_layout: Placement, use_local_output: bool) -> None:
        self.input_layouts = (input_layout,)
        self.output_layouts = (output_layout,)
        self.use_local_output = use_local_output

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None = 0) -> Module:
        """Distribute a linear layer or an embedding over a mesh of one dim, in place."""
        kind = next((kind for kind in self.weights if isinstance(module, kind)), None)
        if kind is None:
            raise UnsupportedError(
                f"{type(self).__name__} currently only supports nn.Linear and nn.Embedding, "
                f"not {type(module).__name__}!"
            )
        for name, parameter in list(module.named_parameters(recurse=False)):
            placement = self.biases if name == "bias" else self.weights[kind]
            whole = distribute_tensor(parameter.detach(), mesh, [placement], src_data_rank=src_data_rank)
            module.register_parameter(name, Parameter(whole, parameter.requires_grad))
        (layout,), (wanted,), desired = self.input_layouts, self.output_layouts, self.desired[kind]
        # An input that is given as a part has its last dim divided; the layer knows how long the whole one is, also
        # where parts are uneven.
        features = module.in_features if isinstance(module, Linear) else None

        def split(_: Module, inputs: Args, own: DeviceMesh) -> Args:
            return _distributed(inputs[0], own, layout, desired, features), *inputs[1:]

        def placed(_: Module, output: object, __: DeviceMesh) -> object:
            return _output(output, wanted, self.use_local_output)

        return distribute_module(module, mesh, input_fn=split, output_fn=placed)


class ColwiseParallel(_SplitParallel):
    """A layer whose output features are split: `Linear` by rows of its weight, `Embedding` by columns.

    Plain inputs have the placement `input_layouts` (by default `Replicate()`), outputs get `output_layouts` (by default
    they are split along the last dim), as plain tensors if `use_local_output`.
    """

    weights: ClassVar[Mapping[type[Module], Placement]] = {Linear: Shard(0), Embedding: Shard(1)}
    biases = Shard(0)
    desired: ClassVar[Mapping[type[Module], Placement]] = {Linear: Replicate(), Embedding: Replicate()}

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(input_layouts or Replicate(), output_layouts or Shard(-1), use_local_output)


class RowwiseParallel(_SplitParallel):
    """A layer whose input features are split: `Linear` by columns of its weight, `Embedding` by rows.

    Plain inputs have the placement `input_layouts` (by default they are split along the last dim), outputs get
    `output_layouts` (by default `Replicate()`), as plain tensors if `use_local_output`.
    """

    weights: ClassVar[Mapping[type[Module], Placement]] = {Linear: Shard(1), Embedding: Shard(0)}
    biases = Replicate()
    desired: ClassVar[Mapping[type[Module], Placement]] = {Linear: Shard(-1), Embedding: Replicate()}

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        super().__init__(input_layouts or Shard(-1), output_layouts or Replicate(), use_local_output)


class SequenceParallel(ParallelStyle):
    """A layer with replicated parameters, such as a norm, whose input is split along the sequence."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None = 0) -> Module:
        """Distribute a module over a mesh of one dim, in place."""
        (layout,) = self.sequence_sharding

        def split(layer: Module, inputs: Args, own: DeviceMesh) -> Args:
            return _distributed(_tensor_of(inputs[0], layer), own, layout, layout), *inputs[1:]

        def local(_: Module, output: DTensor, __: DeviceMesh) -> Tensor:
            return output.to_local() if self.use_local_output else output

        return distribute_module(module, mesh, input_fn=split, output_fn=local)


def _tensor_of(x: object, module: Module) -> Tensor:
    if not isinstance(x, Tensor):
        raise ValueRangeError(f"expecting input of {module} to be a torch.Tensor or DTensor, but got {x}")
    return x


Layouts = Sequence[Placement | None]


class PrepareModuleInput(ParallelStyle):
    """Inputs of a module become distributed tensors, and are moved to where it needs them.

    `input_layouts` are the placements of plain positional inputs, None for what is left as it is;
    `desired_input_layouts` those that the module gets, as plain tensors if `use_local_output`. The arguments with
    `kwarg` say the same of inputs by keyword.
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | Layouts | None = None,
        desired_input_layouts: Placement | Layouts | None = None,
        input_kwarg_layouts: Mapping[str, Placement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = _as_layouts(input_layouts)
        self.desired_input_layouts = _as_layouts(desired_input_layouts)
        self.input_kwarg_layouts = dict(input_kwarg_layouts or {})
        self.desired_input_kwarg_layouts = dict(desired_input_kwarg_layouts or {})
        self.use_local_output = use_local_output
        if len(self.input_layouts) != len(self.desired_input_layouts):
            raise PreconditionError("input_layouts and desired_input_layouts should have same length!")
        if self.input_kwarg_layouts.keys() != self.desired_input_kwarg_layouts.keys():
            raise PreconditionError("input_kwarg_layouts and desired_input_kwarg_layouts should have the same names!")

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None = 0) -> Module:
        """Let a module get its inputs so."""

        def moved(_: Module, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
            return self._moved(args, kwargs, mesh)

        module.register_forward_pre_hook(moved, with_kwargs=True)
        return module

    def _moved(self, args: Args, kwargs: Kwargs, mesh: DeviceMesh) -> tuple[Args, Kwargs]:
        if self.input_layouts and len(args) != len(self.input_layouts):
            raise ValueRangeError(
                f"module inputs and input_layouts should have same length, but got {len(args)} and "
                f"{len(self.input_layouts)}!"
            )
        if self.input_layouts:
            each = zip(args, self.input_layouts, self.desired_input_layouts, strict=True)
            args = tuple([self._one(x, layout, desired, mesh) for x, layout, desired in each])
        moved = dict(kwargs)
        for name in self.input_kwarg_layouts.keys() & kwargs.keys():
            layouts = self.input_kwarg_layouts[name], self.desired_input_kwarg_layouts[name]
            moved[name] = self._one(kwargs[name], *layouts, mesh)
        return args, moved

    def _one(self, x: object, layout: Placement | None, desired: Placement | None, mesh: DeviceMesh) -> object:
        if layout is None:
            return x
        if not isinstance(x, Tensor):
            raise PreconditionError(
                f"expecting input to be a torch.Tensor! Its layout is {layout}, but got {x!r}; the layout of what is "
                "no tensor is None"
            )
        whole = _distributed(x, mesh, layout, desired or layout)
        return whole.to_local() if self.use_local_output and isinstance(whole, DTensor) else whole


class PrepareModuleOutput(ParallelStyle):
    """Outputs of a module become distributed tensors, and are moved to where they are needed.

    `output_layouts` are the placements of plain outputs, None for what is left as it is; `desired_output_layouts` those
    that they get, as plain tensors if `use_local_output`.
    """

    def __init__(
        self,
        *,
        output_layouts: Placement | Layouts,
        desired_output_layouts: Placement | Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.output_layouts = _as_layouts(output_layouts)
        self.desired_output_layouts = _as_layouts(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise PreconditionError("output_layouts and desired_output_layouts should have same length!")

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None = 0) -> Module:
        """Let a module give its outputs so."""

        def moved(_: Module, args: Args, outputs: object) -> object:
            return self._moved(outputs, mesh)

        module.register_forward_hook(moved)
        return module

    def _moved(self, outputs: object, mesh: DeviceMesh) -> object:
        entries = outputs if is_tuple(outputs) else (outputs,)
        if len(entries) != len(self.output_layouts):
            raise ValueRangeError(
                f"module outputs and output_layouts should have same length, but got {len(entries)} and "
                f"{len(self.output_layouts)}!"
            )
        moved: list[object] = []
        for x, layout, desired in zip(entries, self.output_layouts, self.desired_output_layouts, strict=True):
            whole = x if layout is None else _distributed(x, mesh, layout, desired or layout)
            moved.append(whole.to_local() if self.use_local_output and isinstance(whole, DTensor) else whole)
        return tuple(moved) if isinstance(outputs, tuple) else moved[0]


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` together; the arguments are theirs."""

    def __init__(
        self,
        *,
        input_layouts: Placement | Layouts | None = None,
        desired_input_layouts: Placement | Layouts | None = None,
        input_kwarg_layouts: Mapping[str, Placement] | None = None,
        desired_input_kwarg_layouts: Mapping[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Placement | Layouts,
        desired_output_layouts: Placement | Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def apply(self, module: Module, mesh: DeviceMesh, src_data_rank: int | None = 0) -> Module:
        """Let a module get its inputs and give its outputs so."""
        self.prepare_module_input.apply(module, mesh, src_data_rank)
        return self.prepare_module_output.apply(module, mesh, src_data_rank)


def _as_layouts(layouts: Placement | Layouts | None) -> Layouts:
    if layouts is None:
        return ()
    return (layouts,) if isinstance(layouts, Placement) else tuple(layouts)
