"""The attributes of modules, to restore them after a function is recorded."""

from __future__ import annotations

from collections.abc import Callable

from weft._base.types import AttributeValue
from weft._lazy.value import Value
from weft._tensor.tensor import Tensor
from weft._tensor.view import set_value
from weft.nn._module import Module


class KeptAttributes:
    """The attributes of modules as they were when the modules were added.

    assigned    the names of attributes that were assigned, although a program cannot do that
    """

    def __init__(self) -> None:
        self.assigned: list[str] = []
        self._kept: dict[int, tuple[str | None, Module, dict[str, Tensor | None], dict[str, AttributeValue]]] = {}

    def add(self, module: Module, path: str | None = None) -> None:
        """Keep the attributes of a module; `path` is its name in the state, if it is there."""
        if id(module) not in self._kept:
            self._kept[id(module)] = path, module, dict(_buffers_of(module)), dict(vars(module))

    def restore(self, is_made: Callable[[Value], bool]) -> None:
        """Undo what was assigned. A new tensor for a buffer that is state counts as a write to it.

        `is_made` tells whether the function has made a value: it may assign to attributes of modules that it makes.
        """
        for path, module, buffers, plain in self._kept.values():
            prefix = f"{path}." if path else ""
            present = _buffers_of(module)
            for name, old in buffers.items():
                new = present.get(name)
                if isinstance(new, Tensor) and isinstance(old, Tensor) and new is not old:
                    value = new._read()
                    if path is not None and value.aval is old._read().aval:
                        set_value(old, value)
                    # A module that the function has made itself is gone with the call: what it assigns there is no
                    # state.
                    elif path is not None or not is_made(old._read()):
                        self.assigned.append(prefix + name)
                present[name] = old
            now = vars(module)
            for name in [*now]:
                if isinstance(now[name], Tensor) and now[name] is not plain.get(name):
                    if path is not None:
                        self.assigned.append(prefix + name)
                    del now[name]
            # Tensors are put back, and what was deleted; Python numbers stay as the function has left them.
            now.update({name: old for name, old in plain.items() if name not in now or isinstance(old, Tensor)})


def _buffers_of(module: Module) -> dict[str, Tensor | None]:
    return vars(module)["_buffers"]
