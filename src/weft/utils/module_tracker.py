"""Which modules are being called, in forward and in backward passes."""

from __future__ import annotations

import threading
from bisect import bisect_right
from operator import itemgetter
from typing import Self
from weakref import WeakKeyDictionary

from weft._autograd.engine import differentiated, is_running
from weft._base.state import ambient, enter, leave
from weft._lazy.value import tick
from weft.errors import OptionError
from weft.nn import Module
from weft.nn._hooks import register_module_forward_hook, register_module_forward_pre_hook

_GLOBAL = "Global"


class ModuleTracker:
    """A block that follows the calls of modules in its thread.

    A module is called by the name of the outermost module's class, followed by its path there: "Net.layers.0". In a
    backward pass, the modules are those that have recorded the operator whose derivative is being recorded.
    `RuntimeError` if the block is entered while it is open.
    """

    def __init__(self) -> None:
        self._names: WeakKeyDictionary[Module, str] = WeakKeyDictionary()
        self._thread = 0  # that of the block, while it is open
        self._reset()

    def _reset(self) -> None:
        self._open = [_GLOBAL]
        self._begun: list[tuple[int, frozenset[str]]] = []  # from which recording on these modules were being called

    def __enter__(self) -> Self:
        if self._thread:
            raise OptionError(
                f"this {type(self).__name__} is in use already; make another one for a block in its block"
            )
        self._reset()
        self._thread = threading.get_ident()
        self._handles = [
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ]
        self._token = enter(observers=(*ambient().watchers.observers, _watch))
        return self

    def __exit__(self, *exception: object) -> None:
        leave(self._token)
        for handle in self._handles:
            handle.remove()
        self._thread = 0

    @property
    def is_bw(self) -> bool:
        """Whether this thread is in a backward pass."""
        return is_running()

    @property
    def parents(self) -> set[str]:
        """The names of the modules that are being called, and "Global"."""
        if not is_running():
            return set(self._open)
        vertex = differentiated()
        at = 0 if vertex is None else bisect_right(self._begun, vertex.time, key=itemgetter(0))
        return set(self._begun[at - 1][1]) if at else {_GLOBAL}

    def _enter_module(self, module: Module, args: object) -> None:
        if self._is_followed():
            self._open.append(self._name_of(module))
            self._begin()

    def _leave_module(self, module: Module, args: object, output: object) -> None:
        if self._is_followed() and len(self._open) > 1:  # what is left may have been entered before the block
            self._open.pop()
            self._begin()

    def _is_followed(self) -> bool:
        """Whether a call is one of the program in this thread, and none by which a backward pass computes again."""
        return threading.get_ident() == self._thread and not is_running()

    def _begin(self) -> None:
        self._begun.append((tick(), frozenset(self._open)))

    def _name_of(self, module: Module) -> str:
        if module not in self._names:
            root = type(module).__name__
            self._names.update({part: f"{root}.{path}" if path else root for path, part in module.named_modules()})
        return self._names[module]


def _watch(values: object) -> None:
    """Nothing: while somebody observes, backward passes tell what they differentiate."""
