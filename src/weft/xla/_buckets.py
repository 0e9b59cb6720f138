"""Tensors in buckets, for functions that are better called once with many of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from weft._base.guards import is_list
from weft._base.types import AnyCallable, PyTree, Result
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ValueRangeError

_MB = 1 << 20


class CoalescingBuckets:
    """Calls `func(inputs, outputs)` with lists of tensors of at most about `bucket_cap_mb` MB together.

    A bucket of one tensor calls it with this tensor and its output instead of lists. Without an `output_list`, outputs
    are None. `func` returns its results: one tensor, or a list in the order of the inputs.
    """

    def __init__(
        self,
        func: AnyCallable,
        input_list: list[Tensor],
        output_list: list[Tensor] | None = None,
        bucket_cap_mb: float = 160,
    ) -> None:
        require_tensors("input_list", input_list)
        if output_list is not None:
            require_tensors("output_list", output_list)
            require_length("output_list", output_list, "input_list", input_list)
        self._func = func
        self._inputs = input_list
        self._outputs = output_list
        self._cap = bucket_cap_mb * _MB
        self._total = 0
        self._bucket: list[Tensor] = []
        self._bucket_outputs: list[Tensor] = []
        self._results: list[Tensor] = []

    def add(self, tensor: Tensor, idx: int) -> None:
        """Put the tensor with this index into the bucket."""
        self._total += tensor.nbytes
        self._bucket.append(tensor)
        if self._outputs is not None:
            self._bucket_outputs.append(self._outputs[idx])

    def flush(self) -> None:
        """Call the function with what is in the bucket, and empty it."""
        outputs = None if self._outputs is None else self._bucket_outputs
        if len(self._bucket) == 1:
            self._results.append(self._func(self._bucket[0], None if outputs is None else outputs[0]))
        elif self._bucket:
            self._results.extend(self._func(self._bucket, outputs))
        self._total, self._bucket, self._bucket_outputs = 0, [], []

    def __call__(self) -> Result:
        """The results for all inputs, in order."""
        for idx, tensor in enumerate(self._inputs):
            total = self._total + tensor.nbytes
            # A tensor that is too large joins a bucket with little in it instead of leaving that alone.
            if tensor.nbytes > self._cap and self._total < self._cap / 2 and total <= 2 * self._cap:
                self.add(tensor, idx)
                self.flush()
                continue
            if total > self._cap:
                self.flush()
            self.add(tensor, idx)
        self.flush()
        results, self._results = self._results, []
        assert len(results) == len(self._inputs), "the function gives one result for each input"
        return results


def require_tensors(name: str, value: PyTree, accepts: str = "a list of Tensors") -> None:
    """Raise `TypeError` unless an argument is a list of tensors; `accepts` says what it may be."""
    if not is_list(value) or not all(isinstance(item, Tensor) for item in value):
        raise ArgumentError(f"`{name}` needs to be {accepts}, but given {type(cast('Any', value))}.")


def require_length(name: str, tensors: list[Tensor], other: str, expected: Sequence[object]) -> None:
    """Raise `ValueError` unless a list has as many entries as another one."""
    if len(tensors) != len(expected):
        raise ValueRangeError(f"`{name}` length doesn't match `{other}` length: {len(tensors)} vs {len(expected)}.")
