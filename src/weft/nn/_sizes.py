"""Helpers of layers, under PyTorch's import path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from weft._base.types import Arg, SavedState
from weft.ops._neural import ntuple


def _ntuple(n: int, name: str = "parse") -> Callable[[object], tuple[Arg, ...]]:
    """A function that turns a single value into a tuple of `n`, and a sequence into a tuple."""
    del name
    return partial(ntuple, n=n)


_single, _pair, _triple, _quadruple = (_ntuple(n) for n in (1, 2, 3, 4))


def reversed_and_repeated(t: Sequence[Arg], n: int) -> tuple[Arg, ...]:
    """The entries from the last to the first, each `n` times: padding of a convolution as `pad` takes it."""
    return tuple([x for x in reversed(t) for _ in range(n)])


def consume_prefix_in_state_dict_if_present(state_dict: SavedState, prefix: str) -> None:
    """Remove a prefix from the keys of a state dict and of its metadata, in place; the order of keys stays."""
    for key in list(state_dict):
        state_dict[key.removeprefix(prefix)] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    for path in list(metadata or ()):
        if path == prefix.removesuffix("."):
            metadata[""] = metadata.pop(path)  # pyright: ignore[reportOptionalSubscript, reportOptionalMemberAccess]
        elif path:
            metadata[path.removeprefix(prefix)] = metadata.pop(path)  # pyright: ignore[reportOptionalSubscript, reportOptionalMemberAccess]
