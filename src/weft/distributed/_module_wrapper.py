"""Modules around another module, of which programs see little: names are as without them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from weft._base.types import Arg, AttributeValue, Result
from weft._tensor.tensor import Tensor
from weft.nn import Module, Parameter


class ModuleWrapper(Module):
    """A module around another one, which it calls. What it lacks itself is looked up there."""

    inner_name: ClassVar[str]
    """The attribute that holds the wrapped module; the names of its parameters and buffers do not show it."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.add_module(self.inner_name, module)

    @property
    def module(self) -> Module:
        """The wrapped module."""
        inner = self._modules[self.inner_name]
        assert inner is not None, "it is set once"
        return inner

    def forward(self, *args: Arg, **kwargs: Arg) -> Result:
        """What the wrapped module computes."""
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> AttributeValue:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == self.inner_name or self.inner_name not in self.__dict__.get("_modules", ()):
                raise
            return getattr(self.module, name)

    def __getitem__(self, key: object) -> Result:
        inner: Result = self.module  # a container
        return inner[key]

    def named_parameters(self, *args: Arg, **kwargs: Arg) -> Iterator[tuple[str, Parameter]]:
        """Names and parameters, as without the wrapper."""
        return ((self.outer(name), parameter) for name, parameter in super().named_parameters(*args, **kwargs))

    def named_buffers(self, *args: Arg, **kwargs: Arg) -> Iterator[tuple[str, Tensor]]:
        """Names and buffers, as without the wrapper."""
        return ((self.outer(name), buffer) for name, buffer in super().named_buffers(*args, **kwargs))

    @classmethod
    def outer(cls, name: str) -> str:
        """A parameter's name as without such wrappers."""
        return name.replace(f"{cls.inner_name}.", "")
