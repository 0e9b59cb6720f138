"""Distributed tensors from whole ones, and new ones."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import TypeAlias

from weft._base.dtype import DType
from weft._base.layout import strided
from weft._base.state import using
from weft._base.types import AnyCallable, Arg, Args, Result
from weft._base.usage import log_api_usage_once
from weft._tensor.composite import create
from weft._tensor.generator import PartOfDraws
from weft._tensor.kind_names import kind_and_advice
from weft._tensor.tensor import Tensor, operand, wrap
from weft.distributed._collectives import broadcast
from weft.distributed._observers import requested
from weft.distributed.device_mesh import DeviceMesh, active_mesh
from weft.distributed.tensor._dtensor import DTensor
from weft.distributed.tensor._placements import Placements
from weft.distributed.tensor._redistribute import redistributed
from weft.distributed.tensor._sharding import labelled, sharding_of
from weft.distributed.tensor._wanted import WantedPlacements, placements_for
from weft.errors import ArgumentError, DimError, DistError, PreconditionError, ValueRangeError
from weft.nn import Module, Parameter


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: WantedPlacements = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """A leaf tensor, which every process has, as a distributed one with these placements; by default replicated.

    The elements are those of the rank `src_data_rank` of each mesh dim; with None, each process takes its own. Instead
    of placements, a mapping may give mesh dims by the names of the tensor's dims: `{"batch": "dp"}`.
    """
    log_api_usage_once("torch.dtensor.distribute_tensor")
    _require_tensor(tensor)
    mesh = active_mesh(device_mesh)
    if not tensor.is_leaf:
        raise DistError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    wanted = placements_for(placements, mesh, tensor.ndim, tensor)
    if isinstance(tensor, DTensor):
        return _redistributed(tensor, mesh, wanted)
    with using(grad=False), requested():
        whole = tensor.detach().clone()
        if src_data_rank is not None and mesh.coordinate is not None and not tensor.is_meta:
            for dim in range(mesh.ndim):
                group = mesh.get_group(dim)
                broadcast(whole, group=group, group_src=src_data_rank)
        replicated = sharding_of(mesh, placements_for(None, mesh, whole.ndim), whole.shape)
        value = redistributed(labelled(operand(whole), replicated), replicated.with_placements(wanted))
    result = wrap(value)
    result.requires_grad_(tensor.requires_grad)
    return result  # pyright: ignore[reportReturnType]  its value is sharded


def _require_tensor(tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"distribute_tensor takes a tensor, but got a {kind_and_advice(tensor)}")


def _redistributed(tensor: DTensor, mesh: DeviceMesh, wanted: Placements) -> DTensor:
    if tensor.device_mesh != mesh:
        raise ValueError(
            f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {mesh}."
        )
    if tensor.placements != tuple(wanted):
        raise ValueError(
            f"Cannot distribute a DTensor with placements {tensor.placements} to different placements {wanted}; do you "
            "want to call `redistribute` instead?"
        )
    return tensor


InputFunction: TypeAlias = Callable[[Module, Args, DeviceMesh], Result] | Callable[[Args, DeviceMesh], Result]
OutputFunction: TypeAlias = Callable[[Module, Result, DeviceMesh], Result] | Callable[[Result, DeviceMesh], Result]


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: InputFunction | None = None,
    output_fn: OutputFunction | None = None,
) -> Module:
    """Make all parameters and buffers of a module distributed, in place: what `partition_fn` leaves is replicated.

    `partition_fn(name, submodule, mesh)` is called for every submodule. `input_fn(module, inputs, mesh)` runs before
    the module and returns its inputs; `output_fn(module, outputs, mesh)` runs after it and returns its outputs.
    """
    log_api_usage_once("torch.dtensor.distribute_module")
    mesh = active_mesh(device_mesh)
    if getattr(module, "_distribute_module_applied", False):
        raise DistError(
            "distribute_module should only be called once on a module, but it has already been called on this module!"
        )
    before, after = _with_module(input_fn, "input_fn", "inputs"), _with_module(output_fn, "output_fn", "outputs")
    for name, submodule in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, submodule, mesh)
        _replicate(submodule, mesh)
    if before is not None:

        def prepare(own: Module, inputs: Args) -> Result:
            return before(own, inputs, mesh)

        module.register_forward_pre_hook(prepare)
    if after is not None:

        def finish(own: Module, _: Args, outputs: Result) -> Result:
            return after(own, outputs, mesh)

        module.register_forward_hook(finish)
    module._distribute_module_applied = True  # PyTorch's name of the mark
    return module


def _with_module(function: AnyCallable | None, name: str, values: str) -> AnyCallable | None:
    """A function of (module, values, mesh); one of (values, mesh) is deprecated."""
    count = 3 if function is None else len(inspect.signature(function).parameters)
    if function is not None and count == 2:
        warnings.warn(
            f"Deprecating {name} that takes two arguments ({values}, device_mesh), please use {name} that takes in "
            f"(module, {values}, device_mesh) instead!",
            FutureWarning,
            stacklevel=3,
        )

        def without_module(_: Module, entries: Arg, mesh: DeviceMesh) -> Result:
            return function(entries, mesh)

        return without_module
    if count != 3:
        raise ValueRangeError(f"{name} should take in 3 arguments, but got {count} arguments!")
    return function


def _replicate(module: Module, mesh: DeviceMesh) -> None:
    for name, parameter in module.named_parameters(recurse=False):
        if not isinstance(parameter, DTensor):
            whole = distribute_tensor(parameter.detach(), mesh)
            module.register_parameter(name, Parameter(whole, parameter.requires_grad))
    for name, buffer in module.named_buffers(recurse=False):
        if not isinstance(buffer, DTensor):
            setattr(module, name, distribute_tensor(buffer, mesh))


def _require_strided(layout: object) -> None:
    if layout not in (None, strided):
        raise PreconditionError(f"layout value not supported! Distributed tensors are strided, not {layout}")


def _sizes(*size: Arg) -> tuple[int, ...]:
    """Sizes that are given one by one, or as a sequence."""
    return tuple(size[0]) if len(size) == 1 and _is_sized(size[0]) else size


def _is_sized(x: object) -> bool:
    return isinstance(x, Sequence)


def _factory(name: str, doc: str, *, drawn: bool = False) -> Callable[..., DTensor]:
    function = getattr(create, name)

    def make(
        *size: Arg,
        dtype: DType | None = None,
        layout: object = None,
        requires_grad: bool = False,
        device_mesh: DeviceMesh | None = None,
        placements: WantedPlacements = None,
    ) -> DTensor:
        _require_strided(layout)
        shape = _sizes(*size)

        def part(own: Sequence[int], first: int) -> Tensor:
            options = {"generator": PartOfDraws(None, first, shape)} if drawn else {}
            return function(own, dtype=dtype, **options)

        return _created(part, shape, requires_grad, device_mesh, placements, drawn=drawn)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = doc
    return make


def _created(
    function: Callable[[Sequence[int], int], Tensor],
    shape: Sequence[int],
    requires_grad: bool,
    device_mesh: DeviceMesh | None,
    placements: WantedPlacements,
    *,
    drawn: bool = False,
) -> DTensor:
    """A new tensor, of which only this process's part is made: by its size and the position of its first element."""
    mesh = active_mesh(device_mesh)
    wanted = placements_for(placements, mesh, len(shape), miscounted=PreconditionError, no_such_dim=DimError)
    if drawn and any(placement.is_partial() for placement in wanted):
        raise PreconditionError(f"numbers are drawn whole or in parts, not as what is to be reduced: {placements}")
    sharding = sharding_of(mesh, wanted, shape)
    result = wrap(sharding.created(shape, lambda size, first: function(size, first)._read()))
    return result.requires_grad_(requires_grad)  # pyright: ignore[reportReturnType]  its value is sharded


zeros = _factory("zeros", "A distributed tensor of zeros.")
ones = _factory("ones", "A distributed tensor of ones.")
empty = _factory("empty", "A distributed tensor without particular elements.")
rand = _factory("rand", "Uniform numbers from [0, 1), those that one device draws.", drawn=True)
randn = _factory("randn", "Normal numbers, those that one device draws.", drawn=True)


def full(
    size: Sequence[int],
    fill_value: complex,
    *,
    dtype: DType | None = None,
    layout: object = None,
    requires_grad: bool = False,
    device_mesh: DeviceMesh | None = None,
    placements: WantedPlacements = None,
) -> DTensor:
    """A distributed tensor whose elements are all `fill_value`."""
    _require_strided(layout)
    return _created(
        lambda own, _: create.full(own, fill_value, dtype=dtype), tuple(size), requires_grad, device_mesh, placements
    )
