"""Loaders of other classes: fastai gives the iterators an object that has only the attributes of PyTorch's loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.utils.data._utils.fetch import Source
from weft.utils.data._utils.position import LoaderPosition

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import AnyLoader


class AdoptedLoader:
    """What the iterators ask of a loader, answered from the attributes that PyTorch's iterators read.

    Each index that the loader's `_index_sampler` gives makes a batch, so the samplers within it do not matter here.
    """

    batch_sampler = None
    batch_size = None

    def __init__(self, loader: AnyLoader) -> None:
        self._loader = loader
        self.sampler = loader._index_sampler

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    @property
    def _reported_length(self) -> int | None:
        return self._loader._IterableDataset_len_called

    def _next_position(self) -> LoaderPosition:
        return LoaderPosition(0, None, None)

    def _source(self) -> Source:
        loader = self._loader
        return Source(
            loader.dataset, bool(loader._dataset_kind), loader._auto_collation, loader.drop_last, loader.collate_fn
        )


def adopted(loader: AnyLoader) -> AnyLoader:
    """The loader, or what stands for one that is not of this package."""
    return loader if hasattr(loader, "_next_position") else AdoptedLoader(loader)
