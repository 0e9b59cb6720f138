"""Steps with sparse gradients: a row of the operator table on the rows of parameters that have gradients."""

from __future__ import annotations

from collections.abc import Sequence

from weft._base.types import Arg
from weft._tensor.codegen import op
from weft._tensor.composed import encoding_of, rule
from weft._tensor.sparse.coo import Coo, coalesced
from weft._tensor.sparse.encoding import is_sparse, number_of
from weft._tensor.tensor import Tensor
from weft.errors import OptionError
from weft.ops._kinds import Kind
from weft.ops._table import TABLE

Tensors = Sequence[Tensor]


def refusal(name: str) -> OptionError:
    """The error of an optimizer whose row has no rule for sparse gradients."""
    advice = ", please consider SparseAdam instead" if name == "Adam" else ""
    return OptionError(f"{name} does not support sparse gradients{advice}")


def _step_on_rows(name: str, params: Tensors, grads: Tensors, *rest: Arg, **options: Arg) -> tuple[Tensor, ...]:
    """The results of a step in which nothing changes where there is no gradient.

    Where a gradient is sparse, the row gets the rows (along dim 0) that it stores, of parameter and state, too.
    """
    kinds = TABLE[name].params[2:]
    # Steps are counted for the whole parameter and not by row.
    columns = [kind.kind is Kind.ARRAYS and kind.name != "step" for kind in kinds if not kind.keyword_only]
    encodings = [encoding_of(coalesced(g)) if is_sparse(g) else None for g in grads]
    for encoding in encodings:
        if encoding is not None and encoding.sparse_dim != 1:
            raise encoding.refusal(name, f" with {encoding.sparse_dim} sparse dims")

    def parts(tensors: Tensors) -> list[Tensor]:
        several = zip(tensors, encodings, strict=True)
        return [x if encoding is None else x.index_select(0, encoding.indices[0]) for x, encoding in several]

    values = [g if encoding is None else encoding.values for g, encoding in zip(grads, encodings, strict=True)]
    arguments = [parts(x) if is_column and x else x for x, is_column in zip(rest, columns, strict=True)]
    new = getattr(op, name)(parts(params), values, *arguments, **options)
    new: Tensors = (new,) if isinstance(new, Tensor) else new
    targets = [*params, *[x for own, is_column in zip(rest, columns, strict=True) if is_column for x in own]]
    merged: list[Tensor] = []
    for at, (target, result) in enumerate(zip(targets, new, strict=False)):
        encoding = encodings[at % len(encodings)]
        merged.append(result if encoding is None else target.index_copy(0, encoding.indices[0], result))
    return (*merged, *new[len(targets) :])


@rule(Coo, "sgd_step")
def _sgd(
    params: Tensors, grads: Tensors, momentum_buffer: Tensors, *numbers: Arg, **options: Arg
) -> tuple[Tensor, ...]:
    if number_of(numbers[-1]):
        raise OptionError("weight_decay option is not compatible with sparse gradients; use 0")
    if momentum_buffer:  # decays in all rows
        whole = [g.to_dense() for g in grads]
        return op.sgd_step(params, whole, momentum_buffer, *numbers, **options)
    return _step_on_rows("sgd_step", params, grads, momentum_buffer, *numbers, **options)


@rule(Coo, "adagrad_step")
def _adagrad(*arguments: Arg, **options: Arg) -> tuple[Tensor, ...]:
    if number_of(arguments[-1]):
        raise OptionError("weight_decay option is not compatible with sparse gradients")
    return _step_on_rows("adagrad_step", *arguments, **options)


@rule(Coo, "sparse_adam_step")
def _sparse_adam(*arguments: Arg, **options: Arg) -> tuple[Tensor, ...]:
    return _step_on_rows("sparse_adam_step", *arguments, **options)


@rule(Coo, "unscale_gradients")
def _unscaled(grads: Tensors, found_inf: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """Of sparse gradients, what is stored counts, once equal indices are added up."""
    encodings = [encoding_of(coalesced(g)) if is_sparse(g) else None for g in grads]
    values = [g if encoding is None else encoding.values for g, encoding in zip(grads, encodings, strict=True)]
    *scaled, infinite = op.unscale_gradients(values, found_inf, scale)
    several = zip(scaled, encodings, strict=True)
    return (*[x if encoding is None else encoding.with_values(x) for x, encoding in several], infinite)
