"""`vmap`: a function of one example as a function of many."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from weft._base.types import AnyCallable, Arg, Args, Kwargs, PyTree
from weft._tensor.codegen import op
from weft._tensor.examples import Examples
from weft._tensor.generator import default_generator
from weft._tensor.kind_names import advice
from weft._tensor.tensor import Tensor
from weft.errors import SettingError, ValueRangeError
from weft.func._names import named_like
from weft.func._trees import Structure, described, flattened, rebuilt, spread

InDims = int | tuple[Any, ...]
OutDims = Any
"""An int or None, or containers of them with the structure of the results or of a part around these."""


def vmap(
    func: AnyCallable,
    in_dims: InDims = 0,
    out_dims: OutDims = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> AnyCallable:
    """`func`, which is written for one example, as a function of many, which it computes together.

    `in_dims` says along which dim each argument has its examples: an int for all, or a tuple with the arguments'
    structure, in which None stands for what all examples share. Results get the dim of the examples at `out_dims`; None
    is for what does not depend on the example. Random numbers within `func` are an "error", the "same" for all
    examples, or "different" for each. With `chunk_size`, so many examples are computed at a time.

    Calls of the result raise `ValueError` for dims that do not fit the arguments or results, and `RuntimeError` if
    `func` reads an element, or writes an example's value to a tensor that all examples share.
    """
    if randomness not in ("error", "different", "same"):
        raise SettingError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueRangeError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")
    mapping = _Mapping(func, in_dims, out_dims, randomness)

    def function(*args: Arg, **kwargs: Arg) -> PyTree:
        return mapping.call(args, kwargs, chunk_size)

    return named_like(func, function)


class _Mapping:
    """The options of one `vmap`."""

    def __init__(self, func: AnyCallable, in_dims: InDims, out_dims: OutDims, randomness: str) -> None:
        self.func = func
        self.in_dims = in_dims
        self.out_dims = out_dims
        self.randomness = randomness

    def call(self, args: Args, kwargs: Kwargs, chunk_size: int | None) -> PyTree:
        """The results for all examples, `chunk_size` at a time."""
        self._check_out_dims()
        leaves, structure = flattened(args)
        dims = self._in_dims(args, leaves, structure)
        size = _size(leaves, dims)
        function = partial(self.func, **kwargs)
        if chunk_size is None or size <= chunk_size:
            return self._together(function, leaves, structure, dims, size)
        before = default_generator.state()
        results: list[Any] = []
        for start in range(0, size, chunk_size):
            # The same numbers for all examples, and so for all chunks.
            if self.randomness == "same":
                default_generator.restore(before)
            count = min(chunk_size, size - start)
            some = [x if dim is None else x.narrow(dim, start, count) for x, dim in zip(leaves, dims, strict=True)]
            results.append(self._together(function, some, structure, dims, count))
        return self._joined(results)

    def _together(
        self, function: AnyCallable, leaves: list[PyTree], structure: Structure, dims: list[int | None], size: int
    ) -> PyTree:
        examples = Examples(size, self.randomness)
        # what is written to the tensor of an example is written to the caller's tensor
        fronts = [x.movedim((dim,), (0,)) if dim else x for x, dim in zip(leaves, dims, strict=True)]
        inputs = [x if dim is None else examples.example_of(x) for x, dim in zip(fronts, dims, strict=True)]
        results = examples.run(function, rebuilt(structure, inputs))
        for front, example, dim in zip(fronts, inputs, dims, strict=True):
            if dim is not None and example._writes:
                front.copy_(examples.result_of(example)[0])
        return self._batched_results(examples, results)

    # --- arguments --------------------------------------------------------------------------------------------

    def _in_dims(self, args: Args, leaves: list[PyTree], structure: Structure) -> list[int | None]:
        """The dim of each leaf, from 0 on; None for those that all examples share."""
        call = f"vmap({self.name}, in_dims={self.in_dims}, ...)(<inputs>)"
        if not isinstance(self.in_dims, (int, tuple)):
            raise ValueRangeError(
                f"{call}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of "
                f"inputs, got: {type(self.in_dims)}."
            )
        if not args:
            raise ValueRangeError(
                f"vmap({self.name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to "
                "vmap over a function with no inputs. The latter is unsupported."
            )
        dims = spread(self.in_dims, structure)
        if dims is None:
            raise ValueRangeError(
                f"{call}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
                f"{described(flattened(self.in_dims)[1])} but inputs has structure {described(structure)}."
            )
        return [_in_dim(call, x, dim) for x, dim in zip(leaves, dims, strict=True)]

    @property
    def name(self) -> str:
        """How errors call the function."""
        return _name_of(self.func)

    # --- results ----------------------------------------------------------------------------------------------

    def _check_out_dims(self) -> None:
        for dim in flattened(self.out_dims)[0]:
            if dim is not None and not isinstance(dim, int):
                raise ValueRangeError(
                    f"vmap({self.name}, ..., out_dims={self.out_dims}): `out_dims` must be an int, None or a python "
                    "collection of ints representing where in the outputs the vmapped dimension should appear."
                )

    def _out_dims(self, results: PyTree) -> list[int | None]:
        """The dim of each leaf of the results."""
        out_dims = self.out_dims
        if isinstance(results, Tensor) and isinstance(out_dims, tuple) and len(out_dims) == 1:
            return list(out_dims)
        structure = flattened(results)[1]
        dims = spread(out_dims, structure)
        if dims is None:
            raise ValueRangeError(
                f"vmap({self.name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure "
                f"of `outputs`. out_dims has structure {described(flattened(out_dims)[1])} but outputs has structure "
                f"{described(structure)}."
            )
        return dims

    def _batched_results(self, examples: Examples, results: PyTree) -> PyTree:
        dims = self._out_dims(results)
        leaves, structure = flattened(results)
        return rebuilt(structure, [self._result(examples, x, dim) for x, dim in zip(leaves, dims, strict=True)])

    def _result(self, examples: Examples, x: Arg, dim: int | None) -> PyTree:
        if not isinstance(x, Tensor):
            if dim is None:
                return x
            raise ValueRangeError(
                f"vmap({self.name}, ...): `{self.name}` must only return Tensors, got type {type(x)}. Did you mean to "
                "set out_dims= to None for output?"
            )
        result, differs = examples.result_of(x)
        if dim is None and differs:
            raise ValueRangeError(
                f"vmap({self.name}, ...): `{self.name}` can not return a BatchedTensor when out_dim is None"
            )
        if dim is None:
            return result
        result = examples.for_each(x)
        return result.movedim((0,), (dim,)) if dim else result

    def _joined(self, results: Sequence[PyTree]) -> PyTree:
        """The results of chunks as one."""
        dims = self._out_dims(results[0])
        columns = zip(*[flattened(each)[0] for each in results], strict=True)
        leaves = [column[0] if dim is None else op.cat(column, dim) for column, dim in zip(columns, dims, strict=True)]
        return rebuilt(flattened(results[0])[1], leaves)


def _in_dim(call: str, x: object, dim: object) -> int | None:
    """A dim of an argument, from 0 on; `ValueError` if the argument has none."""
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise ValueRangeError(
            f"{call}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
        )
    if not isinstance(x, Tensor):
        raise ValueRangeError(
            f"{call}: Got in_dim={dim} for an input but the input is of type {type(x)}. We cannot vmap over non-Tensor "
            f"arguments, please use None as the respective in_dim{advice(x)}"
        )
    if not -x.ndim <= dim < x.ndim:
        raise ValueRangeError(
            f"{call}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {x.ndim} so "
            f"expected in_dim to satisfy -{x.ndim} <= in_dim < {x.ndim}."
        )
    return dim % x.ndim


def _size(leaves: Sequence[PyTree], dims: Sequence[int | None]) -> int:
    """The number of examples; `ValueError` if there are none, or arguments disagree."""
    sizes = [x.shape[dim] for x, dim in zip(leaves, dims, strict=True) if dim is not None]
    if not sizes:
        raise ValueRangeError("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) > 1:
        raise ValueRangeError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0]


def _name_of(func: AnyCallable) -> str:
    if hasattr(func, "__name__"):
        return func.__name__
    return f"functools.partial({_name_of(func.func)}, ...)" if isinstance(func, partial) else repr(func)
