"""PyTorch's older classes of sparse tensors, such as `sparse.FloatTensor(indices, values, size)`."""

from __future__ import annotations

from weft._base.dtype import DType
from weft._base.types import Arg
from weft._tensor.composite.convert import TYPE_NAMES
from weft._tensor.composite.sparse import sparse_coo_tensor
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError


class _SparseType(type):
    """A class whose instances are the tensors of one element type in coordinate format."""

    dtype: DType

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.is_sparse and instance.dtype is cls.dtype

    def __call__(cls, *args: Arg, device: Arg = None) -> Tensor:
        if args and isinstance(args[0], Tensor):
            return sparse_coo_tensor(*args, dtype=cls.dtype, device=device)
        sizes = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
        if not sizes or not all(isinstance(size, int) for size in sizes):
            raise ArgumentError(f"sparse.{cls.__name__}() takes (indices, values[, size]) or sizes, got {args}")
        return sparse_coo_tensor(tuple(sizes), dtype=cls.dtype, device=device)


CLASSES: dict[str, type] = {
    path.removeprefix("torch."): _SparseType(
        path.removeprefix("torch."),
        (),
        {"dtype": dtype, "__module__": "torch.sparse", "__doc__": f"Sparse tensors of `{dtype}`."},
    )
    for path, dtype in TYPE_NAMES.items()
}
