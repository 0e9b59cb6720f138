"""Tensors of which each process of a mesh has a part."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.state import using
from weft._base.types import Arg, SavedState
from weft._checkpoint.safe import add_safe_globals
from weft._lazy.value import Value
from weft._tensor.copying import set_restorer
from weft._tensor.overriding import disabled
from weft._tensor.tensor import Tensor, operand, wrap
from weft.distributed._observers import requested
from weft.distributed.device_mesh import DeviceMesh, active_mesh, mesh_from
from weft.distributed.tensor._across_meshes import moved_to_mesh
from weft.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from weft.distributed.tensor._placements import Partial, Placements, Replicate, Shard, StridedShard
from weft.distributed.tensor._redistribute import redistributed, with_gradient
from weft.distributed.tensor._sharding import SHARDING, Sharding, own_part, sharding_from, sharding_in, sharding_of
from weft.distributed.tensor._views import alias_of, distributed_view, local_view
from weft.distributed.tensor._wanted import WantedPlacements, placements_for, require_common, size_of_parts
from weft.errors import ArgumentError, DistError, OutOfRangeError


class DTensor(Tensor):
    """A tensor that is distributed over a device mesh, as its placements say.

    Programs use it like a tensor of its whole size. An operator runs on the parts of each process, after what it needs
    has been moved; the results are distributed, too. All processes of the mesh must call the same operators.
    """

    __torch_function__ = disabled

    def __new__(cls, local_tensor: object = None, spec: object = None, *, requires_grad: bool = False) -> DTensor:
        """A leaf of which `local_tensor` is this process's part, as another tensor's `_spec` says.

        `DTensor.from_local`, `distribute_tensor` and the factories of `distributed.tensor` are the usual ways.
        """
        if not isinstance(local_tensor, Tensor) or not isinstance(spec, DTensorSpec):
            raise ArgumentError(
                "DTensor(local_tensor, spec, requires_grad=...) takes a tensor and the `_spec` of a DTensor; make one "
                "by DTensor.from_local, distribute_tensor, or by zeros, ones, … there"
            )
        whole = cls.from_local(local_tensor.detach(), spec.mesh, spec.placements, shape=spec.shape)
        whole.requires_grad_(requires_grad)
        return whole

    def __init__(self, local_tensor: object = None, spec: object = None, *, requires_grad: bool = False) -> None:
        del local_tensor, spec, requires_grad

    @property
    def _spec(self) -> DTensorSpec:
        """The mesh, the placements and the type of the whole, under PyTorch's names."""
        meta = TensorMeta(self.sharding.size, self.stride(), self.dtype)
        return DTensorSpec(self.device_mesh, self.placements, meta)

    @property
    def sharding(self) -> Sharding:
        """The mesh, the placements and the whole size."""
        return sharding_in(self._read())

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh over which it is distributed."""
        return self.sharding.mesh

    @property
    def placements(self) -> Placements:
        """How it lies along each dim of the mesh."""
        return self.sharding.placements

    @property
    def ndim(self) -> int:
        """The number of dims of the whole tensor, which the empty part outside of the mesh does not have."""
        return len(self.sharding.size)

    @property
    def local_part(self) -> Tensor:
        """This process's part, outside the tape."""
        with using(grad=False):
            return local_view(self, self.sharding)

    _local_tensor = local_part

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: WantedPlacements = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        grad_placements: WantedPlacements = None,
    ) -> DTensor:
        """The tensor of which each process has given its part; by default, all have given the whole one.

        It is a view of `local_tensor`: what is written to one is written to both.
        `shape` is the size of the whole tensor. Without it, parts of a split dim count as equal. With `run_check`, the
        parts' sizes and types are compared, and replicated tensors are those of the first rank. Gradients flow back to
        `local_tensor`: of its part, and whole where it is replicated or partial, unless `grad_placements` says how
        they are to form the gradient of the whole.
        """
        mesh = active_mesh(device_mesh)
        _require_plain(local_tensor)
        if stride is not None and shape is None:
            raise DistError(f"Found shape:None, stride:{stride}. Please pass both shape and stride at the same time.")
        wanted = placements_for(placements, mesh, local_tensor.ndim, local_tensor, no_such_dim=OutOfRangeError)
        size = size_of_parts(local_tensor, mesh, wanted, shape)
        sharding = sharding_of(mesh, wanted, size)
        if run_check and not sharding.is_outside:
            local_tensor = require_common(local_tensor, mesh, wanted)
        local_tensor = own_part(local_tensor, sharding)
        aval = operand(local_tensor).aval
        # Without `shape`, parts count as equal; where a dim does not divide evenly, ranks would take the whole tensor
        # to have different sizes.
        if aval.shape != sharding.local_shape:
            raise DistError(
                f"from_local: rank {mesh.get_rank()} has a part of size {list(aval.shape)}, but its part of a "
                f"tensor of size {list(size)} with the placements {list(map(str, wanted))} has the size "
                f"{list(sharding.local_shape)}; give the whole tensor's size as `shape`"
            )
        if grad_placements is not None and not sharding.is_outside:
            wanted = placements_for(grad_placements, mesh, local_tensor.ndim)
            local_tensor = wrap(with_gradient(operand(local_tensor), sharding, wanted))
        result = distributed_view(local_tensor, sharding)
        assert isinstance(result, DTensor), "its value is sharded"
        return result

    def to_local(self, *, grad_placements: WantedPlacements = None) -> Tensor:
        """This process's part, as a plain tensor that is a view: what is written to it is written to this tensor.

        `grad_placements` says how the processes' gradients of it form the gradient of the whole; by default they are
        parts of it where this is split, and equal elsewhere.
        """
        value = operand(self)
        if grad_placements is None or value.role is None:
            return local_view(self, self.sharding)
        wanted = placements_for(grad_placements, self.device_mesh, self.ndim, self)
        partial = [at for at, p in enumerate(wanted) if p.is_partial()]
        return wrap(self.sharding.part(redistributed(value, self.sharding, partial)))

    def full_tensor(self, *, grad_placements: WantedPlacements = None) -> Tensor:
        """All of it, as a plain tensor. Every process of the mesh must call it."""
        whole = self.redistribute(placements=[Replicate()] * self.device_mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    def set_(self, source: object = None, *args: Arg, **kwargs: Arg) -> Tensor:
        """Make it a view of another distributed tensor's elements; `RuntimeError` for a plain one."""
        if not isinstance(source, DTensor):
            raise DistError(
                "set_() got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling "
                "distributed operators! distribute_tensor or DTensor.from_local makes one of the source"
            )
        return super().set_(source, *args, **kwargs)

    def redistribute(
        self, device_mesh: DeviceMesh | None = None, placements: WantedPlacements = None, *, async_op: bool = False
    ) -> DTensor:
        """The same tensor with other placements, or on another mesh. Every process of the mesh must call it.

        With the placements that it has, the result is a view.
        """
        del async_op  # results need not be waited for
        if placements is None:
            raise DistError("placements is needed for redistribute!")
        mesh = self.device_mesh if device_mesh is None else active_mesh(device_mesh)
        wanted = placements_for(placements, mesh, self.ndim, self)
        for at, new in enumerate(wanted):
            old = self.placements[at] if mesh == self.device_mesh else None
            if new.is_partial() and old != new:
                raise DistError(
                    f"Can not redistribute from {old or self.placements} to {new}, redistributing to Partial is for "
                    "internal use only!"
                )
        with requested():
            if mesh == self.device_mesh and wanted == self.placements:
                return alias_of(self)
            if mesh != self.device_mesh:
                return _distributed(moved_to_mesh(operand(self), sharding_of(mesh, wanted, self.sharding.size)))
            return _distributed(redistributed(operand(self), self.sharding.with_placements(wanted)))

    # --- values of the whole tensor ---

    def _read_concrete(self, *, decides: bool = False) -> Value:
        value = super()._read_concrete(decides=decides)
        return redistributed(value, self.sharding.replicated())

    def __format__(self, spec: str) -> str:
        return object.__format__(self, spec) if self.ndim else format(self.detach().item(), spec)

    def __repr__(self) -> str:
        placements = ", ".join(map(str, self.placements))
        return f"DTensor({self._whole_if_partial()!r}, device_mesh={self.device_mesh!r}, placements=({placements}))"

    def _whole_if_partial(self) -> Tensor:
        """What is shown: this process's part or, where sums are pending, the sums."""
        return (self.full_tensor() if any(p.is_partial() for p in self.placements) else self.to_local()).detach()


def _require_plain(local_tensor: object) -> None:
    if not isinstance(local_tensor, Tensor) or isinstance(local_tensor, DTensor):
        raise DistError(
            "the local_tensor argument only accepts torch.Tensor but got a "
            f"{type(local_tensor).__name__}; from_local takes a plain tensor"
        )


def _restored(facts: SavedState, parts: dict[str, Tensor]) -> Tensor:
    sharding = sharding_from(facts)
    return DTensor.from_local(parts["part"], sharding.mesh, sharding.placements, shape=sharding.size)


Sharding.tensor_type = DTensor
set_restorer(SHARDING, _restored)
add_safe_globals([DTensor, DeviceMesh, mesh_from, Shard, Replicate, Partial, StridedShard])  # files may name them


def _distributed(value: Value) -> DTensor:
    result = wrap(value)
    assert isinstance(result, DTensor), "its value is sharded"
    return result
