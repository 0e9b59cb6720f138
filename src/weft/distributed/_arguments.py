"""What collectives require of their arguments, and the errors about these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from weft._base.guards import is_list_or_tuple, is_list_or_tuple_of
from weft._tensor.copying import owner_that_saves
from weft._tensor.kind_names import advice, kind_of
from weft._tensor.tensor import Tensor
from weft.distributed._group import ProcessGroup
from weft.distributed._reduce_op import ReduceOp, Reduction, as_reduction, supports_complex
from weft.distributed._world import is_default
from weft.errors import (
    ArgumentError,
    DistError,
    DTypeError,
    OutOfRangeError,
    ShapeError,
    UnsupportedCallError,
    ValueRangeError,
    WeftError,
)


def one_tensor(x: object, name: str, operation: str) -> Tensor:
    """An argument that must be a tensor whose elements lie in one array."""
    if not isinstance(x, Tensor):
        raise ArgumentError(
            f"{operation}: Invalid function argument. Expected parameter `{name}` of type torch.Tensor "
            f"but got {kind_of(x)} instead{advice(x)}."
        )
    _require_array(x, name, operation)
    return x


def _require_array(x: Tensor, name: str, operation: str) -> None:
    owner = owner_that_saves(x)
    if owner is not None:
        raise UnsupportedCallError(
            f"{operation}: `{name}` is a tensor of {owner.describe()}, and such tensors are not exchanged; "
            f"{owner.advice}"
        )


def _first_refused(xs: object) -> str:
    """What is wrong with an argument that should be a list of tensors: an element, or the whole."""
    if not is_list_or_tuple(xs):
        return kind_of(xs)
    at, x = next((at, x) for at, x in enumerate(xs) if not isinstance(x, Tensor))
    return f"{kind_of(x)} at {at}{advice(x)}"


def tensors_of(xs: object, name: str, operation: str) -> list[Tensor]:
    """A list, or a tuple, that must consist of such tensors."""
    if not is_list_or_tuple_of(xs, Tensor):
        raise ArgumentError(
            f"{operation}: Invalid function argument. Expected parameter `{name}` of type "
            f"List[torch.Tensor] with elements of type torch.Tensor, but got {_first_refused(xs)}."
        )
    for at, x in enumerate(xs):
        _require_array(x, f"{name}[{at}]", operation)
    return list(xs)


def of_all_ranks(
    xs: object, like: Tensor, group: ProcessGroup, name: str, operation: str, *, uneven: bool = False
) -> list[Tensor]:
    """One tensor for each rank, checked for the type and shape of `like`; if `uneven`, other ranks' may differ."""
    tensors = tensors_of(xs, name, operation)
    require_one_each(tensors, group, name, operation)
    others_differ = uneven and are_uneven(tensors)
    for rank, x in enumerate(tensors):
        require_type(x, like, f"{name}[{rank}]", operation)
        if x.shape != like.shape and not (others_differ and rank != group.rank()):
            raise ShapeError(
                f"{operation}: {name}[{rank}] has shape {list(x.shape)}, and this rank's tensor {list(like.shape)}"
            )
    return tensors


def are_uneven(tensors: Sequence[Tensor]) -> bool:
    """Whether shapes differ."""
    return any(x.shape != tensors[0].shape for x in tensors)


def require_one_each(tensors: Sequence[object], group: ProcessGroup, name: str, operation: str) -> None:
    """`RuntimeError` unless there are as many as the group has ranks."""
    if len(tensors) != group.size():
        raise OutOfRangeError(
            f"{operation}: `{name}` has {len(tensors)} tensors, but the group has {group.size()} ranks"
        )


def require_type(x: Tensor, like: Tensor, name: str, operation: str, error: type[WeftError] = ValueRangeError) -> None:
    """Raise `error` unless both tensors have one type."""
    if x.dtype is not like.dtype:
        raise error(
            f"Invalid usage of tensors with different dtypes: in {operation}, {name} has {x.dtype}, and the other "
            f"tensor {like.dtype}"
        )


def reduction_of(
    op: object, tensors: Sequence[Tensor], operation: str, error: type[WeftError] = DTypeError
) -> Reduction:
    """The reduction; raises `error` if it does not support complex numbers and tensors are complex."""
    reduction = as_reduction(op)
    for x in tensors:
        if x.dtype.is_complex and not supports_complex(reduction):
            assert isinstance(reduction, ReduceOp), "sums of products with a factor are"
            raise error(f"{operation} does not support {reduction.name} on complex tensors")
    return reduction


def rank_of(group: ProcessGroup, rank: int | None, group_rank: int | None, name: str) -> int:
    """A rank in the group, from either a rank in the job or a rank in the group; `require_rank` has to check it."""
    if (rank is None) == (group_rank is None):
        raise ValueRangeError(f"give one of `{name}`, a rank in the job, and `group_{name}`, a rank in the group")
    if group_rank is None:
        assert rank is not None
        group_rank = rank if is_default(group) else group.rank_in_group(rank)
    return group_rank


def require_rank(rank: SupportsIndex, group: ProcessGroup, name: str) -> int:
    """A rank in the group; `TypeError` for what is no integer, and `RuntimeError` for one out of range."""
    if not hasattr(rank, "__index__"):
        raise ArgumentError(f"{name} must be a rank, which is an integer, but got {kind_of(rank)} {rank!r}")
    if not 0 <= (number := int(rank)) < group.size():
        raise DistError(f"invalid root rank: {name} must be from 0 to {group.size() - 1}, but got {rank}")
    return number


def root_of(group: ProcessGroup, rank: int | None, group_rank: int | None, name: str) -> int:
    """The rank in the group that sends to all others, or gets the result."""
    return require_rank(rank_of(group, rank, group_rank, name), group, name)


def or_first(rank: int | None, group_rank: int | None, group: ProcessGroup) -> tuple[int | None, int | None]:
    """The two ways to give a rank; the group's first one if it is given in neither."""
    return (group.ranks[0], None) if rank is None and group_rank is None else (rank, group_rank)


def require_list_at_root(entries: Sequence[object] | None, name: str, role: str, *, is_root: bool) -> None:
    """`ValueError` unless the rank with this role gives a list, and no other rank does."""
    if is_root and not entries:
        raise ValueRangeError(f"Argument ``{name}`` must be specified on {role} rank.")
    if entries and not is_root:
        raise ValueRangeError(f"Argument ``{name}`` must NOT be specified on non-{role} ranks.")
