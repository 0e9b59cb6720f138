"""What all sparse formats have in common: pointwise operators that keep zeros act on the stored elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from weft._base.autocast import NO_AUTOCAST
from weft._base.dtype import DType
from weft._base.guards import is_tuple
from weft._base.pending import Pending
from weft._base.state import using
from weft._base.types import Arg, Args, Kwargs
from weft._lazy.infer import Call
from weft._lazy.value import Value
from weft._tensor.codegen import op as rows
from weft._tensor.composed import Encoding, composed, encoding_of
from weft._tensor.tensor import Results, Tensor, operand, wrap
from weft.ops._dims import pointwise
from weft.ops._kinds import Scalar
from weft.ops._table import OpDef


@dataclass(eq=False, repr=False)
class Sparse(Encoding):
    """An encoding of tensors that are zero where no element is stored."""

    def with_values(self, values: Tensor) -> Tensor:
        """A tensor that differs in its elements only, with indices of its own."""
        return own_indices(replace(self, values=values))

    def apply(self, call: Call, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        """Compute a row. A result has indices of its own: only a sparse tensor itself shows what its user writes."""
        results = super().apply(call, inputs)
        if call.op.name == "alias":
            return results
        operands = [x.aval.owner for x in inputs]
        encodings = [x.aval.owner for x in results]
        return tuple(
            [
                own_indices(encoding)._read() if isinstance(encoding, Sparse) and encoding not in operands else x
                for x, encoding in zip(results, encodings, strict=True)
            ]
        )

    def derived(self, op: OpDef, args: Sequence[Arg], kwargs: Kwargs) -> Results:
        """The result of a pointwise row of one sparse tensor and numbers, if it is zero where the tensor is."""
        tensors = [at for at, x in enumerate(args) if isinstance(x, Tensor) and not is_number(x)]
        keywords = {name: number_of(x) for name, x in kwargs.items()}
        if op.dims is not pointwise or len(tensors) != 1 or any(isinstance(x, list) for x in (*args, *kwargs.values())):
            raise self.refusal(op.name)
        at = tensors[0]
        others = tuple([number_of(x) for i, x in enumerate(args) if i != at])
        if not _keeps_zero(op.name, args[at].dtype, at, _typed(others), tuple(_typed(keywords.items()))):
            raise self.refusal(op.name, ", since it makes other numbers of zeros, which are not stored")
        encoding = encoding_of(args[at] if op.shards.linear else self.unique(args[at]))
        call = getattr(rows, op.name)
        return encoding.with_values(call(*others[:at], encoding.values, *others[at:], **keywords))

    def created(self, size: Sequence[int], create: Callable[[Sequence[int], int], Value], row: str) -> Value:
        """A new value without stored elements, as by `zeros_like`."""
        if row != "zeros":
            raise self.refusal(f"{row}_like", ", since not all elements are zero")
        return self.empty(size, wrap(create((0,), 0)))._read()

    def empty(self, size: Sequence[int], like: Tensor) -> Tensor:
        """A tensor with this layout that stores nothing, of the type and on the device of `like`."""
        raise NotImplementedError

    def unique(self, x: Tensor) -> Tensor:
        """The same tensor, in which no index is stored twice."""
        return x


def own_indices(encoding: Sparse) -> Tensor:
    """The tensor of an encoding, with indices that nobody else can write to.

    Values do not change, so nothing is copied.
    """
    indices = {name: wrap(part._read()) for name, part in encoding.parts().items() if name != "values"}
    return composed(replace(encoding, **indices))


def is_number(x: Tensor) -> bool:
    """Whether a rule's argument is a Python number."""
    return x._read().aval.weak


def number_of(x: object) -> Scalar:
    """The Python number of an argument that is one; anything else as it is."""
    return operand(x).number if isinstance(x, Tensor) and is_number(x) else x


def is_sparse(x: Tensor) -> bool:
    """Whether the elements of a tensor are stored in a sparse format."""
    return isinstance(encoding_of(x), Sparse)


def _typed(xs: Arg) -> Args:
    """A key that tells 2 from 2.0."""
    return tuple([(type(x[1]), *x) if is_tuple(x) else (type(x), x) for x in xs])


@lru_cache(1024)
def _keeps_zero(name: str, dtype: DType, at: int, others: Args, keywords: Args) -> bool:
    """Whether a pointwise row makes zero of zero, at position `at` beside these numbers."""
    arguments = [x for _, x in others]
    with using(pending=Pending(watched=False), capture=None, grad=False, autocast=NO_AUTOCAST, observers=()):
        zero = rows.zeros((), dtype=dtype)
        result = getattr(rows, name)(*arguments[:at], zero, *arguments[at:], **{key: x for _, key, x in keywords})
        return not bool(result._host())
