"""The observer that keeps a histogram, and cuts off its ends where this makes the quantization error smaller."""

from __future__ import annotations

import warnings
from typing import Any, SupportsFloat, TypeAlias

import numpy as np

from weft._base.dtype import DType, float32, quint8
from weft._base.layout import per_tensor_affine, qscheme
from weft._base.limits import iinfo
from weft._base.types import Arg, Kwargs, PyTree, SavedState
from weft._tensor.composite.create import linspace, zeros
from weft._tensor.convert import from_host, tensor
from weft._tensor.tensor import Tensor
from weft.ao._observing.base import EPS, UniformQuantizationObserverBase, require_tensor
from weft.ao._observing.utils import is_per_tensor
from weft.errors import PreconditionError, UnsupportedError

_Array = np.ndarray[Any, Any]

Numbers: TypeAlias = Any
"""A number, or an array of them."""
_FINER = 16
"""Into how many parts a bin is cut before its content is put into bins of another width."""

_STEP = 1e-5  # PyTorch's, as its ranges must come out
"""The part of all elements that each step of the search cuts off."""


class HistogramObserver(UniformQuantizationObserverBase):
    """The grid whose squared error is least over a histogram of all numbers that were seen.

    `histogram` counts numbers in `bins` bins of equal width from `min_val` to `max_val`. If a number lies outside, bins
    become wider. The search for the best ends starts from the whole range, and cuts off the tail that is longer, as
    long as the error falls.
    """

    histogram: Tensor

    def __init__(
        self,
        bins: int = 2048,
        dtype: DType = quint8,
        qscheme: qscheme = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Kwargs | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Arg,
    ) -> None:
        self._require_scheme(is_per_tensor, qscheme)
        if is_dynamic:
            raise UnsupportedError("HistogramObserver doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, reduce_range, quant_min, quant_max, factory_kwargs, eps, is_dynamic, **kwargs)
        self.bins = bins
        self.register_buffer("histogram", zeros(bins, **(factory_kwargs or {})))
        self.register_buffer("min_val", tensor(float("inf"), **(factory_kwargs or {})))
        self.register_buffer("max_val", tensor(float("-inf"), **(factory_kwargs or {})))
        self.dst_nbins = 2 ** iinfo(dtype).bits
        self.upsample_rate = _FINER

    def forward(self, x: Tensor) -> Tensor:
        """The input, which is counted. Waits for its elements."""
        require_tensor(self, x)
        numbers = x.detach().to(float32).numpy(force=True).reshape(-1)
        if np.isinf(numbers).any():
            warnings.warn("torch.inf detected in input tensor, ignoring input", UserWarning, stacklevel=2)
            numbers = numbers[~np.isinf(numbers)]
        if numbers.size:
            self._count(numbers)
        return x

    def _count(self, x: _Array) -> None:
        old_least, old_most = self._ends()
        least, most = np.minimum(old_least, x.min()), np.maximum(old_most, x.max())
        counts = _counted(x, self.bins, least, most)
        if np.isfinite(old_least):
            counts = counts + self._widened(old_least, old_most, least, most)
        for name, array in (("histogram", counts), ("min_val", least), ("max_val", most)):
            held = getattr(self, name)
            held.copy_(from_host(np.asarray(array, np.float32), held.device))

    def _ends(self) -> tuple[np.float32, np.float32]:
        least, most = (np.float32(x.item()) for x in (self.min_val, self.max_val))
        return least, most

    def _widened(self, old_least: Numbers, old_most: Numbers, least: Numbers, most: Numbers) -> _Array:
        """The counts in bins from `least` to `most`."""
        counts = self.histogram.detach().numpy(force=True)
        if (old_least, old_most) == (least, most):
            return counts
        if old_least == old_most:
            return _counted(old_least[None], self.bins, least, most) * counts.sum()
        parts = self.bins * _FINER
        half = np.float32(0.5) * (old_most - old_least) / np.float32(parts)
        middles: _Array = np.add(_spaced(old_least, old_most, parts)[:-1], half)
        bins = np.searchsorted(_spaced(least, most, self.bins), middles, side="right") - 1
        weights = np.repeat(counts, _FINER) / np.float32(_FINER)
        return np.bincount(bins.clip(0, self.bins - 1), weights, self.bins).astype(np.float32)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The scale and the zero point, each with one entry. Waits for the histogram."""
        least, most = self._ends()
        if least == np.inf and most == -np.inf:
            warnings.warn(
                "must run observer before calling calculate_qparams. Returning default scale and zero point ",
                UserWarning,
                stacklevel=2,
            )
            return tensor([1.0], device=self.min_val.device), tensor([0], device=self.min_val.device)
        if len(self.histogram) != self.bins:
            raise PreconditionError(
                "The number of bins in histogram should be equal to the number of bins supplied while making this "
                f"observer, but they are {len(self.histogram)} and {self.bins}"
            )
        first, last = self._best_bins(float(least), float(most))
        width = (most - least) / np.float32(self.bins)
        ends = [least + width * np.float32(at) for at in (first, last + 1)]
        return self._calculate_qparams(*(from_host(np.asarray(x, np.float32), self.min_val.device) for x in ends))

    def _best_bins(self, least: float, most: float) -> tuple[int, int]:
        """The first and the last bin of the best range."""
        counts = self.histogram.detach().numpy(force=True).astype(np.float32)
        total = float(counts.sum(dtype=np.float64))
        up_to = np.cumsum(counts, dtype=np.float64)
        first, last, below, above, error = 0, self.bins - 1, 0.0, 1.0, np.inf
        while below < above:
            start = max(first, int(np.searchsorted(up_to, (below + _STEP) * total)))
            start = min(start, last)
            end = min(last, int(np.searchsorted(up_to, (above - _STEP) * total, side="right")) - 1)
            end = max(end, first)
            # The side from which a step of the quantile removes more bins is the emptier one.
            cuts_low = start - first > last - end
            if cuts_low:
                below += _STEP
                candidate = start, last
            else:
                above -= _STEP
                candidate = first, end
            if candidate == (first, last):
                continue
            new_error = self._error(counts, (most - least) / self.bins, *candidate)
            # As PyTorch's search: greedy, until a cut makes it worse.
            if new_error > error:
                break
            error, (first, last) = new_error, candidate
        return first, last

    def _error(self, counts: _Array, width: float, first: int, last: int) -> float:
        """The squared error of all counted numbers, spread over their bins, on a grid from one bin to another."""
        step = width * (last - first + 1) / self.dst_nbins
        if not step:
            return 0.0
        begin = (np.arange(self.bins, dtype=np.float32) - first) * width
        end = begin + width
        from_level = (begin // step).clip(0, self.dst_nbins - 1)
        to_level = (end // step).clip(0, self.dst_nbins - 1)
        squares = _cube(step / 2) - _cube(begin - (from_level + 0.5) * step)
        squares = squares + (to_level - from_level - 1) * (_cube(step / 2) - _cube(-step / 2))
        squares = squares + _cube(end - (to_level + 0.5) * step) - _cube(-step / 2)
        return float((squares * counts / width).sum() / 3)

    def _renew_entries(self, state_dict: SavedState, prefix: str, version: int | None) -> None:
        super()._renew_entries(state_dict, prefix, version)
        for name, start in (("min_val", float("inf")), ("max_val", float("-inf"))):
            key = f"{prefix}{name}"
            if (version is None or version < 3) and key in state_dict and not state_dict[key].numel():
                state_dict[key] = tensor(start)


def _cube(x: PyTree) -> PyTree:
    return x * x * x


def _spaced(start: SupportsFloat, end: SupportsFloat, steps: int) -> _Array:
    return linspace(float(start), float(end), steps + 1).numpy(force=True)


def _counted(x: _Array, bins: int, least: Numbers, most: Numbers) -> _Array:
    """How many numbers are in each of `bins` bins from `least` to `most`, as `histc` counts them."""
    if least == most:
        least, most = least - np.float32(1), most + np.float32(1)
    at = ((x - least) / (most - least) * np.float32(bins)).astype(np.int64)
    return np.bincount(at.clip(0, bins - 1), minlength=bins).astype(np.float32)
