"""Shardings: of which tensor a process has a part, and how its values carry that."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from itertools import takewhile
from math import prod

from weft._base.size import Size, size_of
from weft._base.state import using
from weft._base.types import SavedState
from weft._lazy.aval import AnyOwner, Aval, aval_of, named, owned, plain_type
from weft._lazy.infer import Call
from weft._lazy.owner import Stored
from weft._lazy.retyped import retyped, with_owner
from weft._lazy.value import Value
from weft._tensor.composite.create import empty
from weft._tensor.tensor import Tensor, TensorOwner, wrap
from weft.distributed.device_mesh import DeviceMesh, mesh_from
from weft.distributed.tensor._placements import (
    Placement,
    Placements,
    Replicate,
    Shard,
    part,
    placement_from,
    split_order,
)
from weft.errors import DistError
from weft.ops._draws import strides_of


class Sharding(TensorOwner):
    """The owner of distributed tensors: a mesh, a placement for each of its dims, and the size of the whole tensor.

    Compare by identity. If several dims of the mesh split one dim of the tensor, each splits the parts of those before
    it in `split_order`.
    """

    __slots__ = ("mesh", "placements", "size")
    # `tensor_type` is `DTensor`, set where that is defined

    def __init__(self, mesh: DeviceMesh, placements: Placements, size: Size) -> None:
        self.mesh = mesh
        self.placements = placements
        self.size = size

    def describe(self) -> str:
        """The size of the whole, and how it lies over the mesh."""
        return f"{list(self.size)} as {', '.join(map(str, self.placements))} over {list(self.mesh.shape)}"

    def __repr__(self) -> str:
        return self.describe()

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.placements))})"

    def whole_size(self, shape: tuple[int, ...]) -> Size:
        """The size of the whole tensor, whatever the shape of this process's part."""
        del shape
        return self.size

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of this process's part; outside of the mesh [0], as in PyTorch, unless the tensor has no dims."""
        return (0,) if self.is_outside and self.size else tuple(size for _, size in self.local_parts())

    @property
    def is_outside(self) -> bool:
        """Whether this process has no place in the mesh. Then its part is empty, and it takes part in no transfer."""
        return self.mesh.coordinate is None

    def local_parts(self, before: int | None = None) -> list[tuple[int, int]]:
        """For each dim, where this process's part begins, and its size; with `before`, of what this mesh dim splits."""
        return self.parts_at([self.index(at) for at in range(self.mesh.ndim)], before)

    def parts_at(self, coordinate: Sequence[int], before: int | None = None) -> list[tuple[int, int]]:
        """The same for the process at another coordinate of the mesh."""
        parts = [(0, size) for size in self.size]
        for at in takewhile(lambda at: at != before, split_order(self.placements)):
            placement = self.placements[at]
            if isinstance(placement, Shard):
                start, size = parts[placement.dim]
                offset, size = part(size, self.mesh.shape[at], coordinate[at])
                parts[placement.dim] = start + offset, size
        return parts

    def position_in(self, sizes: Sequence[int]) -> int:
        """The position of this process's first element in an array that broadcasts to the sizes of the tensor."""
        parts = self.local_parts()[len(self.size) - len(sizes) :]
        steps = strides_of(tuple(sizes))
        return sum(start * step for (start, _), size, step in zip(parts, sizes, steps, strict=True) if size != 1)

    def index(self, mesh_dim: int) -> int:
        """This process's index along a dim of the mesh; outside of the mesh, one past the last: all parts are empty."""
        coordinate = self.mesh.coordinate
        return self.mesh.shape[mesh_dim] if coordinate is None else coordinate[mesh_dim]

    def with_placements(self, placements: Sequence[Placement]) -> Sharding:
        """The same tensor with other placements."""
        return sharding_of(self.mesh, tuple(placements), self.size)

    def replicated(self) -> Sharding:
        """The same tensor, whole on each process."""
        return self.replicated_of(self.size)

    def replicated_of(self, size: Sequence[int]) -> Sharding:
        """A tensor of this size, whole on each process of the mesh."""
        return sharding_of(self.mesh, (Replicate(),) * self.mesh.ndim, size)

    def of_cotangents(self) -> Sharding:
        """How gradients of values with this sharding lie inside of a backward pass.

        Each process has the gradient of its own part. What is added to others' parts has their common gradient.
        """
        return self.with_placements([Replicate() if p.is_partial() else p for p in self.placements])

    @property
    def _shares(self) -> float:
        """In so many equal shares the value is divided, along all mesh dims where it is an average."""
        averaged = [p.is_partial("avg") for p in self.placements]
        return float(prod(count for count, is_averaged in zip(self.mesh.shape, averaged, strict=True) if is_averaged))

    # --- as an owner ----------------------------------------------------------------------------------------------

    def apply(self, call: Call, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        """Record a call on inputs of which one has a sharding, as its plan says."""
        return _Above.apply(call, inputs)

    def save(self, value: Value) -> Stored[Tensor]:
        """This process's part, as a leaf; the mesh, the placements, and the size of the whole tensor."""
        facts = {"mesh": self.mesh.facts(), "placements": list(map(str, self.placements)), "size": list(self.size)}
        with using(grad=False):
            return Stored(SHARDING, facts, {"part": wrap(self.part(value)).detach()})

    def type_like(self, kind: type[Tensor]) -> type[Tensor]:
        """The class of sharded tensors that are also of a subclass of `Tensor`, such as parameters."""
        if issubclass(self.tensor_type, kind):
            return self.tensor_type
        return kind if issubclass(kind, self.tensor_type) else _both(kind, self.tensor_type)

    def created(self, size: Sequence[int], create: Callable[[Sequence[int], int], Value], row: str = "") -> Value:
        """A new value of this size, placed as values of this sharding are, or whole if they have another size.

        `create` gets the size of this process's part, and the position of its first element.
        """
        del row
        target = self.of_cotangents() if tuple(size) == self.size else self.replicated_of(size)
        return labelled(create(target.local_shape, target.position_in(target.size)), target)

    def to_owner(self, value: Value, owner: AnyOwner | None) -> Value:
        """A value that is written to a tensor, with its sharding; None for a plain tensor, which takes what is whole.

        `RuntimeError` for a plain value that is written to a sharded tensor, or parts to a plain one.
        """
        if owner is None and all(p.is_replicate() for p in self.placements):
            return local_part(value)
        if not isinstance(owner, Sharding) or value.aval.owner is None:
            plain, other = ("tensor", "a DTensor") if owner is None else ("DTensor", "a plain tensor")
            raise DistError(f"cannot write {other} to a {plain}; use distribute_tensor, or to_local()")
        return _Above.redistributed(value, owner)

    def of_gradient(self, gradient: Value) -> Value:
        """The gradient of a value with this sharding, as a backward pass leaves it, as a sharded value.

        Where values are averaged, a backward pass has the gradient of each process's share.
        """
        return labelled(scaled(gradient, self._shares), self.of_cotangents())

    def to_cotangent(self, gradient: Value, text: str) -> Value:
        """A gradient of a value with this sharding, as a backward pass takes it."""
        if gradient.aval.owner is None:
            raise DistError(f"{text} is a plain tensor, and what it is the gradient of is a DTensor")
        return scaled(local_part(_Above.redistributed(gradient, self.of_cotangents())), 1 / self._shares)

    # --- as the owner of what is distributed ----------------------------------------------------------------------

    @property
    def distributed(self) -> Sharding:
        """Itself."""
        return self

    def whole(self, value: Value, size: Sequence[int]) -> Value:
        """A plain value of this size, which all processes have, as one that is whole on each process of the mesh."""
        return labelled(value, self.replicated_of(size))

    def part(self, value: Value) -> Value:
        """This process's part of a value with this sharding, as a plain value with the names of its dims."""
        return with_owner(value, None)

    def seed(self, gradient: Value) -> Value:
        """The gradient of a value with this sharding, which all processes have, as a backward pass takes it."""
        return scaled(gradient, 1 / self._shares)


SHARDING = "sharding"
"""The kind of what files hold of a distributed tensor."""


@cache
def _both(kind: type, sharded_kind: type) -> type:
    return type(sharded_kind.__name__, (kind, sharded_kind), {"__module__": sharded_kind.__module__})


# no cell: filled when the library is imported
class _Above:
    """Functions of higher modules, which shardings call for the layers below."""

    apply: Callable[[Call, tuple[Value, ...]], tuple[Value, ...]]
    redistributed: Callable[[Value, Sharding], Value]


def set_operations(
    apply: Callable[[Call, tuple[Value, ...]], tuple[Value, ...]], redistributed: Callable[[Value, Sharding], Value]
) -> None:
    """Set how calls on sharded values are recorded, and how these are moved."""
    _Above.apply, _Above.redistributed = staticmethod(apply), staticmethod(redistributed)


# no cell: a cache, keyed by all that its entries depend on
_shardings: dict[Hashable, Sharding] = {}


def sharding_of(mesh: DeviceMesh, placements: Placements, size: Sequence[int]) -> Sharding:
    """The one `Sharding` with these properties."""
    key = (mesh.key, placements, tuple(size))
    sharding = _shardings.get(key)
    return sharding or _shardings.setdefault(key, Sharding(mesh, placements, size_of(tuple(size))))


def sharding_in(value: Value) -> Sharding:
    """The sharding of a sharded value."""
    sharding = value.aval.owner
    assert isinstance(sharding, Sharding), "it is sharded"
    return sharding


def sharding_from(facts: SavedState) -> Sharding:
    """The sharding that a file describes; `ValueError` if it describes none."""
    return sharding_of(mesh_from(facts["mesh"]), tuple(map(placement_from, facts["placements"])), facts["size"])


def type_of(aval: Aval, sharding: Sharding) -> Aval:
    """The type of this process's part of a tensor with the element type and the names of `aval`."""
    return owned(named(aval_of(sharding.local_shape, aval.dtype, device=aval.device), aval.names), sharding)


def type_text(aval: Aval) -> str:
    """The type of the whole tensor of which a value is a part, with its placements: `float32[4, 8] (S(0))`."""
    placements = "" if aval.owner is None else f" {aval.owner}"
    return f"{aval.dtype.name}{list(aval.size)}{placements}"


def whole_type(aval: Aval) -> Aval:
    """The type of the whole tensor of which a value of this type is a part."""
    if aval.owner is None:
        return aval
    return named(aval_of(tuple(aval.size), aval.dtype, device=aval.device), aval.names)


def scaled(value: Value, factor: float) -> Value:
    """A plain value times a number."""
    return value if factor == 1 else (wrap(value) * factor)._read()


def labelled(value: Value, sharding: Sharding) -> Value:
    """A plain value as this process's part of a tensor; outside of the mesh, an empty one in its place."""
    if sharding.is_outside:
        value = own_part(wrap(value), sharding)._read()
    return retyped(value, type_of(value.aval, sharding))


def own_part(local: Tensor, sharding: Sharding) -> Tensor:
    """What a process gives as its part: outside of the mesh, an empty tensor, to which no gradients flow."""
    if not sharding.is_outside or tuple(local.shape) == sharding.local_shape:
        return local
    options = {"dtype": local.dtype, "device": local.device, "requires_grad": local.requires_grad}
    return empty(sharding.local_shape, **options)


def local_part(value: Value) -> Value:
    """The array of a sharded value, as a plain value."""
    return retyped(value, plain_type(value.aval))
