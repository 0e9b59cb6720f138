"""What is refused of writes: targets, overlapping sources, and results of another type, shape or names."""

from __future__ import annotations

from collections.abc import Iterable

from weft._base.dtype import DType, can_cast
from weft._base.state import ambient
from weft._lazy.role import Leaf
from weft._tensor.alias import layout_of, owner_of
from weft._tensor.base import TensorBase
from weft.errors import DimNameError, DTypeError, InPlaceError, ShapeError
from weft.ops._dims import Names, Sizes, broadcast_shapes
from weft.ops._type_names import scalar_name


def check_writable(target: TensorBase, grad: bool) -> None:
    """Raise `RuntimeError` for a leaf that requires a gradient, a view of one, and a tensor made in inference mode.

    So for a tensor that is older than a function whose derivatives are taken.
    """
    state = ambient()
    if state.context.transform is not None and owner_of(target)._read().time < state.context.transform.start:
        raise InPlaceError(
            "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation "
            "that would mutate a captured Tensor. This is not supported; please rewrite the function being transformed "
            "to explicitly accept the mutated Tensor(s) as inputs."
        )
    if grad:
        _check_leaf(target)
    if target._read().aval.inference and not state.inference:
        raise InPlaceError(
            "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get a "
            "normal tensor before doing inplace update."
        )


def _check_leaf(target: TensorBase) -> None:
    role = target._read().role
    if isinstance(role, Leaf):
        raise InPlaceError(
            "a leaf Variable that requires grad is being used in an in-place operation. "
            "Write inside torch.no_grad(), or to a clone()"
        )
    alias = target._alias
    if alias is not None and alias.tracked:
        root = alias.base._read().role
        if isinstance(root, Leaf):
            raise InPlaceError(
                "a view of a leaf Variable that requires grad is being used in an in-place operation. "
                "Write inside torch.no_grad(), or to a view of a clone()"
            )


def check_overlap(target: TensorBase, sources: Iterable[TensorBase], *, wholly: bool = False) -> None:
    """Raise `RuntimeError` if a tensor that is read overlaps the written one without being exactly the same elements.

    With `wholly`, exactly the same elements are refused, too.
    """
    alone = target._alias is None and target._views is None
    for source in sources:
        if source is target:
            overlaps = wholly
        else:
            overlaps = not alone and owner_of(source) is owner_of(target) and _overlap(target, source, wholly)
        if overlaps:
            raise InPlaceError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                "memory location. Please clone() the tensor before performing the operation."
            )


def _overlap(target: TensorBase, source: TensorBase, wholly: bool) -> bool:
    return layout_of(target).overlaps(layout_of(source), wholly=wholly)


def check_cast(have: DType, want: DType) -> None:
    """Raise `RuntimeError` if results of type `have` cannot be written to a tensor of type `want`."""
    if not can_cast(have, want):
        raise DTypeError(
            f"result type {scalar_name(have)} can't be cast to the desired output type {scalar_name(want)}"
        )


def check_shape(have: Sizes, want: Sizes) -> None:
    """Raise `RuntimeError` if results of shape `have` do not broadcast to `want`, the shape of the written tensor."""
    if have != want and (both := broadcast_shapes(want, have)) != want:
        raise ShapeError(f"output with shape {list(want)} doesn't match the broadcast shape {list(both)}")


def check_names(own: Names | None, computed: Names | None) -> None:
    """Raise `RuntimeError` where results with other names go into a tensor whose dims have names."""
    if own is not None and computed is not None and own != computed:
        raise DimNameError(
            f"Name mismatch: specified out tensor with names {list(own)} are not the same as the computed output names "
            f"{list(computed)}. Please rename the out tensor's dims with `Tensor.rename`."
        )
