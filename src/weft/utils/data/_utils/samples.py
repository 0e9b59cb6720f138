"""Names for what datasets hold and loaders give."""

from __future__ import annotations

from typing import Any, TypeAlias

AnyDataset: TypeAlias = Any
"""A dataset: an object with `__getitem__`, `__getitems__` or `__iter__`, mostly a `Dataset`."""

Index: TypeAlias = Any
"""What a dataset is asked with, mostly an integer. Samplers give it, and may give anything."""

Sample: TypeAlias = Any
"""What a dataset gives for an index: numbers, arrays, tensors, texts, and containers of them."""

AnyLoader: TypeAlias = Any
"""A `DataLoader`, whose options fit each other: where there are workers, there is a `prefetch_factor`."""

Batch: TypeAlias = Any
"""What a loader gives: the samples of several indices, put together by `collate_fn`."""
