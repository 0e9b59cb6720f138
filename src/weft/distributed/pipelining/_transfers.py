"""What stages exchange: tensors in tuples, lists and dicts, as messages between ranks.

Nothing about them is agreed on in advance. The first message of each stage and microbatch is preceded by a description
of what it holds; so is a later one that holds something else than the one before it, such as a smaller last batch.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from weft._base.device import DeviceLike
from weft._base.dtype import DType, int64, uint8
from weft._base.types import PyTree
from weft._tensor.composite.create import empty
from weft._tensor.convert import from_host, tensor
from weft._tensor.tensor import Tensor
from weft.distributed._group import ProcessGroup
from weft.distributed._p2p import irecv, isend
from weft.distributed._work import Work
from weft.distributed.device_mesh import DeviceMesh
from weft.distributed.tensor import DTensor, Placement
from weft.errors import ArgumentError

FindMesh = Callable[[tuple[str, ...] | None, tuple[int, ...]], DeviceMesh]
"""The mesh of this rank that has these names of dims, and this shape."""


@dataclass(frozen=True, slots=True)
class TensorDescription:
    """How a distributed tensor lies on a mesh; the receiver has another mesh of this form."""

    placements: tuple[Placement, ...]
    size: tuple[int, ...]
    mesh_dim_names: tuple[str, ...] | None
    mesh_shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape, type and names of dims of a tensor that is sent, and whether its sender wants its gradient."""

    shape: tuple[int, ...]
    dtype: DType
    requires_grad: bool
    names: tuple[str | None, ...] | None
    layout: TensorDescription | None = None


def _described(leaf: object) -> object:
    """What is said of a leaf in advance; what is no tensor is sent in this way alone."""
    if isinstance(leaf, Tensor):
        names = leaf.names if leaf.has_names() else None
        return TensorSpec(tuple(_part_of(leaf).shape), leaf.dtype, leaf.requires_grad, names, _layout_of(leaf))
    if not isinstance(leaf, (bool, int, float, complex, str, bytes)):
        raise ArgumentError(
            f"stages exchange tensors, numbers and texts in tuples, lists and dicts, but got a {type(leaf).__name__}"
        )
    return leaf


def _part_of(x: Tensor) -> Tensor:
    """What this rank has of a tensor, without names."""
    part = x.local_part if isinstance(x, DTensor) else x.detach()
    return part.rename(None) if part.has_names() else part


def _layout_of(x: Tensor) -> TensorDescription | None:
    if not isinstance(x, DTensor):
        return None
    mesh = x.device_mesh
    return TensorDescription(x.placements, tuple(x.shape), mesh.mesh_dim_names, mesh.shape)


def tensors_of(structure: PyTree) -> list[Tensor]:
    """The tensors in a structure, in order."""
    return [leaf for leaf in jax.tree.leaves(structure) if isinstance(leaf, Tensor)]


def map_tensors(function: Callable[[Tensor], object], structure: PyTree) -> PyTree:
    """The structure with the results of a function in place of its tensors."""

    def mapped(leaf: object) -> object:
        return function(leaf) if isinstance(leaf, Tensor) else leaf

    return jax.tree.map(mapped, structure)


class Transfers:
    """Sends and receives of one rank; a tag stands for one stage, microbatch and direction."""

    def __init__(self, group: ProcessGroup, device: DeviceLike) -> None:
        self._group = group
        self._device = device
        self._sent: dict[int, bytes] = {}
        self._received: dict[int, PyTree] = {}
        self._works: list[Work | None] = []

    def send(self, structure: PyTree, peer: int, tag: int) -> None:
        """Start to send to a rank of the group. `TypeError` for what cannot be sent."""
        description = pickle.dumps(jax.tree.map(_described, structure))
        changed = self._sent.get(tag) != description
        self._sent[tag] = description
        head = [tensor([len(description) if changed else 0], dtype=int64)]
        if changed:
            head.append(from_host(np.frombuffer(description, np.uint8)))
        parts = [_part_of(x) for x in tensors_of(structure)]
        self._works = [work for work in self._works if work is not None and not work.is_completed()]
        self._works += [isend(x, group=self._group, group_dst=peer, tag=tag) for x in (*head, *parts)]

    def receive(self, peer: int, tag: int, find_mesh: FindMesh) -> PyTree:
        """What a rank of the group sends with this tag; tensors ask for gradients if those that were sent do."""
        # Size 0 says that it is as the last message with this tag: only the first one, or one that differs, brings a
        # description along.
        head = empty(1, dtype=int64)
        self._fetch([head], peer, tag)
        if size := int(head.item()):
            data = empty(size, dtype=uint8)
            self._fetch([data], peer, tag)
            self._received[tag] = pickle.loads(data._host().tobytes())
        leaves, tree = jax.tree.flatten(self._received[tag])
        parts = [
            empty(leaf.shape, dtype=leaf.dtype, device=self._device) if isinstance(leaf, TensorSpec) else None
            for leaf in leaves
        ]
        self._fetch([part for part in parts if part is not None], peer, tag)
        results = [
            leaf if part is None else _assembled(part, leaf, find_mesh)
            for part, leaf in zip(parts, leaves, strict=True)
        ]
        return jax.tree.unflatten(tree, results)

    def _fetch(self, targets: Sequence[Tensor], peer: int, tag: int) -> None:
        works = [irecv(target, group=self._group, group_src=peer, tag=tag) for target in targets]
        for work in works:
            assert work is not None, "this rank is in the group"
            work.wait()

    def finish(self) -> None:
        """Wait until all that was sent has been received."""
        works, self._works = self._works, []
        for work in works:
            if work is not None:
                work.wait()


def _assembled(part: Tensor, spec: TensorSpec, find_mesh: FindMesh) -> Tensor:
    """A received part as the tensor that was sent."""
    layout = spec.layout
    if spec.names is not None:
        part = part.rename(*spec.names)
    if layout is not None:
        mesh = find_mesh(layout.mesh_dim_names, layout.mesh_shape)
        part = DTensor.from_local(part, mesh, layout.placements, shape=layout.size)
    return part.requires_grad_(spec.requires_grad)
