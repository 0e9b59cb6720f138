"""Handles that remove hooks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, SupportsIndex

_keys = count()  # ids of handles would come again: most callers drop the handle at once


class RemovableHandle:
    """Removes a hook from the dict that it was registered in: `handle.remove()`, or leaving a `with` block.

    `id` is the key under which the hook is to be entered into `hooks_dict`; nothing is entered here. What
    `extra_dict`, a dict or several, has under this key is removed, too.
    """

    def __init__(
        self, hooks_dict: dict[int, Any], *, extra_dict: dict[int, Any] | Sequence[dict[int, Any]] = ()
    ) -> None:
        self.id = next(key for key in _keys if key not in hooks_dict)  # an unpickled dict has keys of another process
        extras = [extra_dict] if isinstance(extra_dict, dict) else extra_dict or ()
        self._tables: list[dict[int, Any]] = [hooks_dict, *extras]

    def remove(self) -> None:
        """Remove the hook; further calls do nothing."""
        for table in self._tables:
            table.pop(self.id, None)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        """A plain handle, with the state that PyTorch's has in pickles."""
        del protocol
        return object.__new__, (RemovableHandle,), (self._tables[0], self.id, tuple(self._tables[1:]))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        hooks, self.id, *extra = state  # PyTorch's dead handles have None for their hooks
        self._tables = [{} if hooks is None else hooks, *(extra[0] or () if extra else ())]

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Handle(RemovableHandle):
    """A handle that enters its hook itself."""

    def __init__(self, hooks: dict[int, Any], hook: Any) -> None:
        super().__init__(hooks)
        hooks[self.id] = hook
