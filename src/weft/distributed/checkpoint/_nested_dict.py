"""State dicts of dicts and lists as flat ones, with keys that are paths joined by dots."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import pairwise

from weft._base.guards import is_list, is_mapping, is_mutable_mapping
from weft._base.types import Arg, PyTree, SavedState
from weft._tensor.tensor import Tensor
from weft.errors import ValueRangeError

Path = tuple[str | int, ...]
"""Keys of dicts, as strings, and positions in lists."""


def flatten_state_dict(state_dict: Mapping[Arg, Arg]) -> tuple[SavedState, dict[str, Path]]:
    """The leaves of a nested dict by the keys of all levels joined by dots, and the paths behind those keys.

    A list is taken apart if there are tensors or dicts in it. `ValueError` if two leaves have one key.
    """
    flat: SavedState = {}
    paths: dict[str, Path] = {}
    for path, value in _leaves(state_dict, ()):
        key = ".".join(map(str, path))
        if key in flat:
            raise ValueRangeError(f"duplicated flatten key {key}: the state dict has it at {paths[key]} and {path}")
        flat[key], paths[key] = value, path
    return flat, paths


def _leaves(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    if is_mapping(value):
        for key, entry in value.items():
            yield from _leaves(entry, (*path, str(key)))
    elif is_list(value) and _is_nested(value):
        for at, entry in enumerate(value):
            yield from _leaves(entry, (*path, at))
    else:
        yield path, value


def _is_nested(items: list[object]) -> bool:
    return any(isinstance(item, (Tensor, Mapping)) or (is_list(item) and _is_nested(item)) for item in items)


def check_paths(paths: Mapping[str, Path]) -> None:
    """`ValueError` unless paths from a file are keys and positions, of lists that have something at each place.

    A single path with a large position would make a list that fills the memory.
    """
    lengths: dict[Path, int] = {}
    for path in paths.values():
        if not path or not all(isinstance(key, str) or (type(key) is int and key >= 0) for key in path):
            raise ValueRangeError(f"{path!r} is no path of keys and positions")
        for at, key in enumerate(path):
            if isinstance(key, int):
                lengths[tuple(path[:at])] = max(lengths.get(tuple(path[:at]), 0), key + 1)
    if sum(lengths.values()) > sum(map(len, paths.values())):
        raise ValueRangeError(f"its lists have {sum(lengths.values())} places, more than there are entries for")


def set_element(root: PyTree, path: Path, value: object, exact: bool = False) -> None:
    """Set what is at a path of a nested dict; dicts and lists that are missing on the way to it are made.

    With `exact`, the dicts have the keys of paths, as those that this function makes; else a key of a path stands for
    any key that is spelt so. To look for one that there is not takes as long as the dict is large.
    """
    at = root
    for key, following in pairwise(path):
        if _get(at, key, exact) is None:
            _put(at, key, {} if isinstance(following, str) else [], exact)
        at = _get(at, key, exact)
    _put(at, path[-1], value, exact)


def _get(container: PyTree, key: str | int, exact: bool) -> PyTree:
    if is_mutable_mapping(container):
        return container.get(key if exact else _own_key(container, key))
    return container[key] if int(key) < len(container) else None


def _put(container: PyTree, key: str | int, value: object, exact: bool) -> None:
    if is_mutable_mapping(container):
        container[key if exact else _own_key(container, key)] = value
        return
    container.extend([None] * (int(key) + 1 - len(container)))
    container[key] = value


def _own_key(container: Iterable[Arg], key: str | int) -> Hashable:
    """The key that a path has as a string, which may be a number in the dict."""
    return key if key in container else next((own for own in container if str(own) == key), key)
