"""Objects of PyTorch's, which may be installed and imported beside this package: how to tell them, and what to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft._base.own_names import is_own_module, is_torch


def is_of_pytorch(kind: type) -> bool:
    """Whether a class is one of PyTorch's, or derived from one: its objects work with no others."""
    return any(is_module_of_pytorch(base.__module__) for base in kind.__mro__)


def is_module_of_pytorch(name: str) -> bool:
    """Whether a module of this name, such as the `__module__` of a class, is PyTorch's, and not this package's."""
    return name.partition(".")[0] == "torch" and not is_own_module(name)


def registers_in_pytorch(x: object) -> bool:
    """Whether a module of PyTorch's would register `x` when it becomes an attribute: a module, parameter or buffer."""
    kind = type(x)
    if kind.__module__ == "builtins" or is_torch():  # most attributes; and there is no PyTorch then
        return False
    return any((base.__module__, base.__name__) in _REGISTERED for base in kind.__mro__)


_REGISTERED = {
    ("torch.nn.modules.module", "Module"),
    ("torch.nn.parameter", "Parameter"),
    ("torch.nn.parameter", "Buffer"),
}


def way_from_pytorch(x: object) -> str:
    """What to use in place of an object of PyTorch's, which follows its type in errors; "" for any other object."""
    kind = type(x)
    if not is_of_pytorch(kind):
        return ""
    classes = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
    own = next((_OWN[name](x) for name in classes if name in _OWN), "what Weft has under this name")
    return f"; it is PyTorch's: use {own}"


def _of_same_name(x: object) -> str:
    return f"weft.{repr(x).removeprefix('torch.')}"


_OWN: dict[str, Callable[[Any], str]] = {
    "torch.dtype": _of_same_name,
    "torch.layout": _of_same_name,
    "torch.memory_format": _of_same_name,
    "torch.qscheme": _of_same_name,
    "torch.device": _of_same_name,
    "torch._C.Generator": lambda generator: f"weft.Generator().manual_seed({generator.initial_seed()})",
    "torch.nn.modules.module.Module": lambda _: (
        "a module of weft.nn, and load the state: "
        "load_state_dict({name: weft.from_dlpack(x) for name, x in module.state_dict().items()})"
    ),
    "torch.optim.optimizer.Optimizer": lambda _: "an optimizer of weft.optim for parameters of Weft",
}
"""By class, the text that makes or finds what Weft has in an object's place."""
