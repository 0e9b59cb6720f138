"""What `weft.compile` makes of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._base.types import AnyCallable, AttributeValue
from weft.nn._module import Module


class OptimizedModule(Module):
    """A module whose calls are captured and replayed; `_orig_mod` is the module itself, and its only child.

    Attributes that it has not itself are read from the module, and assigned to it. Hooks that are registered here run
    around the captured call.
    """

    forward: Callable[..., Any]

    def __init__(self, module: Module, forward: AnyCallable) -> None:
        super().__init__()
        own = self.__dict__
        del own["training"]  # it is the module's
        own["_modules"]["_orig_mod"] = module
        own["forward"] = forward

    def __getattr__(self, name: str) -> AttributeValue:
        modules = self.__dict__.get("_modules")
        if not modules:  # while it is created or unpickled
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return modules["_orig_mod"] if name == "_orig_mod" else getattr(modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: AttributeValue) -> None:
        if name in ("_orig_mod", "forward"):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __reduce__(self) -> tuple[object, ...]:
        return OptimizedModule, (self._orig_mod, self.forward)


def _optimized(module: Module, compile: Callable[[Module], AnyCallable]) -> OptimizedModule:
    return OptimizedModule(module, compile(module))


Module.compiled_by = _optimized
