"""What nested tensors have in common: dims after the first are those of the components, counted from 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from weft._base.guards import is_list, is_tuple
from weft._base.types import Arg, Kwargs, PyTree
from weft._lazy.aval import AnyOwner
from weft._lazy.value import Value
from weft._tensor.codegen import op as rows
from weft._tensor.composed import Encoding, encoding_of
from weft._tensor.tensor import Tensor
from weft.errors import LayoutError, UnsupportedCallError
from weft.ops._dims import along, pointwise, reduces, wrap_dim
from weft.ops._kinds import Kind
from weft.ops._table import OpDef

PLAIN = frozenset({
    "linear", "matmul", "embedding", "layer_norm", "rms_norm", "unsqueeze", "squeeze", "transpose", "permute", "cat",
    "unflatten", "max_dim", "min_dim", "sort", "topk",
})  # fmt: skip
"""Rows that treat the first dims of their input like a batch, whatever their number is. So do pointwise rows, and those
along some dims. Others, such as convolutions, give dims a meaning by their position."""


@dataclass(eq=False, repr=False)
class Nested(Encoding):
    """An encoding of several tensors, the components, along the first dim."""

    advice = "use x.unbind(), or x.to_padded_tensor(padding), first"
    kind = "NestedTensor"

    def components(self) -> tuple[Tensor, ...]:
        """The tensors along the first dim."""
        raise NotImplementedError

    def joined(self, components: Sequence[Tensor]) -> Tensor:
        """A tensor of new components, of the same layout."""
        raise NotImplementedError

    def row_of_components(self, op: OpDef, args: Sequence[object], kwargs: Kwargs) -> list[Tensor]:
        """The results of a row for each component; other nested arguments give theirs."""
        results: list[Tensor] = []
        for at in range(self.shape[0]):
            result = getattr(rows, op.name)(*_at(args, at), **_at_each(kwargs, at))
            if not isinstance(result, Tensor):
                raise self.refusal(op.name)
            results.append(result)
        return results

    def row_on(self, op: OpDef, args: Sequence[object], kwargs: Kwargs) -> tuple[list[Arg], Kwargs]:
        """The arguments of a row with dims as components count them, and without random keys."""
        if not (op.dims in (pointwise, along, reduces) or op.name in PLAIN):
            raise self.refusal(op.name)
        positional = [p for p in op.params if not p.keyword_only]
        shifted = [self._shifted(op, p, x) for p, x in zip(positional, args, strict=True) if p.kind is not Kind.KEY]
        by_name = {p.name: p for p in op.params}
        if any(p.kind is Kind.KEY for p in op.params) and not op.name.startswith("dropout"):
            raise self.refusal(op.name)
        return shifted, {
            name: self._shifted(op, by_name[name], x)
            for name, x in kwargs.items()
            if by_name[name].kind is not Kind.KEY
        }

    def _shifted(self, op: OpDef, param: Arg, x: Arg) -> tuple[int, ...] | int | None:
        is_dim = param.kind in (Kind.DIM, Kind.DIMS) or param.text in ("DimList", "OwnDim")
        if not (is_dim or (op.name == "unsqueeze" and param.name == "dim")) or x is None:
            return x
        ndim = len(self.shape) + (op.name == "unsqueeze")
        if is_tuple(x):
            dims = tuple([wrap_dim(d, ndim) for d in x])
            if op.name == "permute":
                if not dims or dims[0]:
                    raise self._first_dim(op.name)
                dims = dims[1:]
        else:
            dims = wrap_dim(x, ndim)
        if 0 in (dims if is_tuple(dims) else (dims,)):
            raise self._first_dim(op.name)
        return tuple([d - 1 for d in dims]) if is_tuple(dims) else dims - 1

    def _first_dim(self, name: str) -> UnsupportedCallError:
        return UnsupportedCallError(f"{name}(): not supported for NestedTensor on dim=0; {self.advice}")

    def to_owner(self, value: Value, owner: AnyOwner | None) -> Value:
        """A value that is written to a tensor with this encoding; `RuntimeError` for one that differs in its sizes."""
        own = value.aval.owner
        if type(own) is not type(owner) or not isinstance(own, Nested) or own.size != self.size:
            raise LayoutError("cannot write to a nested tensor what is not nested with the same sizes; use x.unbind()")
        return value

    def whole_array(self) -> NoReturn:
        """Raises: there is none."""
        raise self.refusal("to_dense")


def component_at(input: Tensor, dim: int, index: Arg) -> Tensor:
    """`select` along the first dim; `RuntimeError` for others."""
    encoding = encoding_of(input)
    if dim % len(encoding.shape):
        raise encoding.refusal("select", " but for dim 0")
    return encoding.components()[int(index.item() if isinstance(index, Tensor) else index)]


def attention_of_components(query: Tensor, key: Tensor, value: Tensor, mask: object, *options: object) -> Tensor:
    """Attention of each component's queries to its own keys."""
    encoding = encoding_of(query)
    if mask is not None or not (is_nested(key) and is_nested(value)):
        raise encoding.refusal("scaled_dot_product_attention", " with a mask, or beside dense ones")
    several = zip(*(encoding_of(x).components() for x in (query, key, value)), strict=True)
    return encoding.joined([rows.attention(q[None], k[None], v[None], None, *options)[0] for q, k, v in several])


def is_nested(x: object) -> bool:
    """Whether an argument is a nested tensor."""
    return isinstance(x, Tensor) and isinstance(encoding_of(x), Nested)


def nested_among(args: Sequence[Arg], kwargs: Kwargs) -> list[Tensor]:
    """The nested tensors among arguments, also in lists."""
    flat = [x for entry in (*args, *kwargs.values()) for x in (entry if is_list(entry) else [entry])]
    return [x for x in flat if is_nested(x)]


def _at(args: Sequence[object], at: int) -> list[Arg]:
    """Arguments with components in the place of nested tensors."""
    return [_component(x, at) for x in args]


def _at_each(kwargs: Kwargs, at: int) -> Kwargs:
    return {name: _component(x, at) for name, x in kwargs.items()}


def _component(x: Arg, at: int) -> PyTree:
    if is_list(x):
        return [_component(part, at) for part in x]
    return encoding_of(x).components()[at] if is_nested(x) else x


def reduces_all(op: OpDef, args: Sequence[object], kwargs: Kwargs) -> bool:
    """Whether a call reduces all dims to one number."""
    if op.dims is not reduces and op.name not in ("any", "all"):
        return False
    arguments = arguments_of(op, args, kwargs)
    return arguments.get("dim") in (None, ()) and not arguments.get("keepdim")


def arguments_of(op: OpDef, args: Sequence[object], kwargs: Kwargs) -> Kwargs:
    """The arguments of a row by name."""
    return dict(zip([p.name for p in op.params if not p.keyword_only], args, strict=True)) | kwargs
