"""Random inputs for measurements: sizes drawn from distributions, and tensors of these sizes and of several layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import log2, prod
from typing import Any

import numpy as np

import weft
from weft._base.dtype import DType, float32
from weft._base.types import Arg, Kwargs
from weft._tensor.tensor import Tensor
from weft.errors import OptionError, ValueRangeError
from weft.random import manual_seed

Params = dict[str, Any]

_MOST_TRIES = 1000


class ParameterAlias:
    """In the distribution of a `FuzzedParameter`: the value of another parameter, so that sizes broadcast or agree."""

    def __init__(self, alias_to: str) -> None:
        self.alias_to = alias_to

    def __repr__(self) -> str:
        return f"ParameterAlias[alias_to: {self.alias_to}]"


class FuzzedParameter:
    """A number to draw: between `minval` and `maxval`, both included, or one of the keys of a distribution.

    `distribution` is "loguniform" (an integer), "uniform" (an integer if both bounds are), or a dict from values to
    probabilities, and then there are no bounds. A `strict` parameter is drawn once for each example, however often the
    others are drawn again to meet the constraints. `ValueError` for a distribution that is none.
    """

    def __init__(
        self,
        name: str,
        minval: float | None = None,
        maxval: float | None = None,
        distribution: str | Mapping[Any, float] | None = None,
        strict: bool = False,
    ) -> None:
        self.name = name
        self.strict = strict
        self._low, self._high, self._distribution = minval, maxval, distribution
        if isinstance(distribution, Mapping):
            if minval is not None or maxval is not None:
                raise ValueRangeError(f"FuzzedParameter {name!r}: a dict of values has no minval and maxval")
            if any(p < 0 for p in distribution.values()) or abs(sum(distribution.values()) - 1) > 1e-5:
                raise ValueRangeError(
                    f"FuzzedParameter {name!r}: the probabilities {list(distribution.values())} must add up to 1"
                )
        elif distribution not in ("loguniform", "uniform"):
            raise ValueRangeError(
                f"FuzzedParameter {name!r}: unknown distribution {distribution!r}; choose 'loguniform', 'uniform', "
                "or a dict of probabilities"
            )
        elif minval is None or maxval is None:
            raise ValueRangeError(
                f"FuzzedParameter {name!r}: the distribution {distribution!r} needs minval and maxval"
            )

    def sample(self, state: np.random.RandomState) -> Arg:
        """Draw a value."""
        if isinstance(self._distribution, Mapping):
            values = list(self._distribution)
            return values[state.choice(np.arange(len(values)), p=tuple(self._distribution.values()))]
        low, high = self._low, self._high
        assert low is not None, "checked above"
        assert high is not None, "checked above"
        if self._distribution == "loguniform":
            return min(max(int(2 ** state.uniform(log2(low), log2(high))), low), high)
        if isinstance(low, int) and isinstance(high, int):
            return int(state.randint(low, high + 1))
        return state.uniform(low, high)


class FuzzedTensor:
    """A tensor to make, whose sizes are numbers or names of parameters.

    `steps` cuts it out of a larger tensor, one element in so many for each dim. With `probability_contiguous` its
    memory is in the order of its dims; else these are permuted. Parameters by which it would have less than
    `min_elements` or more than `max_elements`, or the larger tensor more than `max_allocation_bytes`, are drawn again.
    The parameter `dim_parameter` is the number of dims; surplus sizes are left out, and missing ones are 1.

    `tensor_constructor(size=, dtype=, **params)` makes it; by default numbers are drawn between 0 and 1, or integers
    between 1 and 126.
    """

    def __init__(
        self,
        name: str,
        size: Sequence[str | int],
        steps: Sequence[str | int] | None = None,
        probability_contiguous: float = 0.5,
        min_elements: int | None = None,
        max_elements: int | None = None,
        max_allocation_bytes: int | None = None,
        dim_parameter: str | None = None,
        roll_parameter: str | None = None,
        dtype: DType = float32,
        cuda: bool = False,
        tensor_constructor: Callable[..., Tensor] | None = None,
    ) -> None:
        del roll_parameter
        self.name = name
        self._size, self._steps, self._dim = tuple(size), tuple(steps or ()), dim_parameter
        self._contiguous = probability_contiguous
        self._elements = min_elements or 0, max_elements
        self._most_bytes = max_allocation_bytes
        self._dtype, self._cuda = dtype, cuda
        self._make = tensor_constructor or _drawn_tensor

    def satisfies_constraints(self, params: Params) -> bool:
        """Whether the tensor is neither too small nor too large with these parameters."""
        size, steps = self._resolved(params)
        least, most = self._elements
        nbytes = prod(size) * prod(steps) * self._dtype.itemsize
        return (
            least <= prod(size)
            and (most is None or prod(size) <= most)
            and (self._most_bytes is None or nbytes <= self._most_bytes)
        )

    def make(self, params: Params, state: np.random.RandomState) -> tuple[Tensor, Kwargs]:
        """The tensor, and what it is: "numel", "order" of the dims in memory, "steps", "is_contiguous", "dtype"."""
        size, steps = self._resolved(params)
        whole = tuple([n * step for n, step in zip(size, steps, strict=True)])
        tensor = self._make(size=whole, dtype=self._dtype, **params)
        if self._cuda:
            tensor = tensor.to("cuda")
        order = np.arange(len(size))
        if state.rand() > self._contiguous:
            while len(size) > 1 and (order == np.arange(len(size))).all():
                order = state.permutation(len(size))
            tensor = tensor.permute(tuple(order.tolist())).contiguous().permute(tuple(np.argsort(order).tolist()))
        tensor = tensor[tuple([slice(0, n, step) for n, step in zip(whole, steps, strict=True)])]
        properties = {
            "numel": tensor.numel(),
            "order": order,
            "steps": steps,
            "is_contiguous": tensor.is_contiguous(),
            "dtype": str(self._dtype),
        }
        return tensor, properties

    def _resolved(self, params: Params) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The size and the steps, as numbers."""
        dim = len(self._size) if self._dim is None else params[self._dim]
        size, steps = (
            tuple([params[n] if isinstance(n, str) else n for n in (*sizes, *[1] * dim)][:dim])
            for sizes in (self._size, self._steps)
        )
        return size, steps


class Fuzzer:
    """Draws examples: parameters, and tensors that are made by them.

    `parameters` and `tensors` may have lists among their entries. Each of the `constraints` gets the parameters by
    name, and says whether they are allowed. A `seed` makes the examples repeatable; the default generator gets one,
    too.
    """

    def __init__(
        self,
        parameters: Iterable[FuzzedParameter | Iterable[FuzzedParameter]],
        tensors: Iterable[FuzzedTensor | Iterable[FuzzedTensor]],
        constraints: Iterable[Callable[..., bool]] | None = None,
        seed: int | None = None,
    ) -> None:
        self._seed = int(np.random.RandomState().randint(2**32 - 1, dtype=np.int64)) if seed is None else seed
        self._parameters = [
            p for entry in parameters for p in ([entry] if isinstance(entry, FuzzedParameter) else entry)
        ]
        self._tensors = [t for entry in tensors for t in ([entry] if isinstance(entry, FuzzedTensor) else entry)]
        self._constraints = list(constraints or ())
        self._draws = self._rejections = 0
        both = {p.name for p in self._parameters} & {t.name for t in self._tensors}
        if both:
            raise ValueRangeError(f"Duplicate names in parameters and tensors: {both}")

    @property
    def rejection_rate(self) -> float:
        """The part of all draws that the constraints have refused."""
        return self._rejections / self._draws if self._draws else 0.0

    def take(self, n: int) -> Iterator[tuple[dict[str, Tensor], dict[str, Kwargs], Params]]:
        """`n` examples: tensors by name, what they are by name (as from `FuzzedTensor.make`), and parameters by name.

        `RuntimeError` if a thousand draws were refused.
        """
        state = np.random.RandomState(self._seed)
        manual_seed(int(state.randint(2**63, dtype=np.int64)))
        for _ in range(n):
            params = self._drawn(state)
            examples = {tensor.name: tensor.make(params, state) for tensor in self._tensors}
            yield {k: tensor for k, (tensor, _) in examples.items()}, {k: p for k, (_, p) in examples.items()}, params

    def _drawn(self, state: np.random.RandomState) -> Params:
        strict: Params = {}
        for _ in range(_MOST_TRIES):
            params: Params = {}
            for p in self._parameters:
                params[p.name] = strict[p.name] if p.name in strict else p.sample(state)
                if p.strict:
                    strict[p.name] = params[p.name]
            params = {name: _followed(name, params) for name in params}
            self._draws += 1
            if all(allows(**params) for allows in self._constraints) and all(
                tensor.satisfies_constraints(params) for tensor in self._tensors
            ):
                return params
            self._rejections += 1
        raise OptionError(
            f"Fuzzer: {_MOST_TRIES} draws of {', '.join([p.name for p in self._parameters])} did not meet the "
            "constraints and the limits of the tensors; widen one of them"
        )


def _followed(name: str, params: Params) -> Arg:
    """The value of a parameter, which may be an alias of others."""
    seen = [name]
    value = params[name]
    while isinstance(value, ParameterAlias):
        if value.alias_to in seen or value.alias_to not in params:
            raise ValueRangeError(f"Fuzzer: the alias {' -> '.join([*seen, value.alias_to])} leads to no value")
        seen.append(value.alias_to)
        value = params[value.alias_to]
    return value


def _drawn_tensor(size: tuple[int, ...], dtype: DType, **params: Arg) -> Tensor:
    del params
    if dtype.is_floating_point or dtype.is_complex:
        return weft.rand(size, dtype=dtype)
    return weft.randint(1, 127, size, dtype=dtype)
