"""The tensors that an exported function reads and writes besides its arguments, by name."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial

from weft._base.guards import is_dict, is_list_or_tuple, is_mapping
from weft._base.types import Json, PyTree
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, ProgramError
from weft.export._attributes import KeptAttributes
from weft.nn._module import Module
from weft.nn._parameter import Parameter
from weft.optim._fused import FusedOptimizer
from weft.optim._optimizer import Optimizer


class NamedState:
    """Tensors by name, and the optimizers among their owners.

    kinds             by name: "parameter", "buffer", "optimizer" or "tensor"
    changed_numbers   names of Python numbers of optimizers that the function has changed while it was recorded
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.kinds: dict[str, str] = {}
        self.optimizers: dict[str, Optimizer] = {}
        self._modules: dict[str, Module] = {}
        self._ids: set[int] = set()
        self.changed_numbers: dict[str, None] = {}

    def add(self, owner: object, prefix: str) -> None:
        """Add a module, an optimizer, a tensor, or a container of these. A tensor keeps its first name."""
        if isinstance(owner, Tensor):
            self._add_tensor(prefix, owner, "parameter" if isinstance(owner, Parameter) else "tensor")
        elif isinstance(owner, Module):
            self._modules.update({_joined(prefix, name): module for name, module in owner.named_modules()})
            for name, tensor in owner.named_parameters():
                self._add_tensor(_joined(prefix, name), tensor, "parameter")
            for name, tensor in owner.named_buffers():
                self._add_tensor(_joined(prefix, name), tensor, "buffer")
        elif isinstance(owner, Optimizer):
            self._add_optimizer(owner, prefix)
        elif is_mapping(owner):
            for name, inner in owner.items():
                self.add(inner, _joined(prefix, str(name)))
        elif is_list_or_tuple(owner):
            for at, inner in enumerate(owner):
                self.add(inner, _joined(prefix, str(at)))
        else:
            raise ArgumentError(
                f"export: state must be modules, optimizers, tensors, or lists and dicts of these, but "
                f"{prefix or 'it'} is a {type(owner).__name__}"
            )

    def _add_tensor(self, name: str, tensor: Tensor, kind: str) -> None:
        if id(tensor) not in self._ids:
            self._ids.add(id(tensor))
            self.tensors[name] = tensor
            self.kinds[name] = kind

    def _add_optimizer(self, optimizer: Optimizer, prefix: str) -> None:
        self.optimizers[prefix] = optimizer
        params = [param for group in optimizer.param_groups for param in group["params"]]
        if isinstance(optimizer, FusedOptimizer):
            for group in optimizer.param_groups:  # makes what the first step would make, before that step is recorded
                optimizer._begin(group, group["params"])  # pyright: ignore[reportPrivateUsage]  as other names are the user's
        for at, param in enumerate(params):
            self._add_tensor(_joined(prefix, f"params.{at}"), param, "parameter")
            for key, entry in optimizer.state.get(param, {}).items():
                if isinstance(entry, Tensor):
                    self._add_tensor(_joined(prefix, f"state.{at}.{key}"), entry, "optimizer")

    def option_name(self, getter: Callable[[], object]) -> str | None:
        """The name of an optimizer's number, such as a learning rate, from the function that reads it."""
        if not isinstance(getter, partial) or len(getter.args) != 3:
            return None
        table, option, at = getter.args
        for prefix, optimizer in self.optimizers.items():
            for number, group in enumerate(optimizer.param_groups):
                if group is table:
                    name = f"param_groups.{number}.{option}"
                    return _joined(prefix, name if at is None else f"{name}.{at}")
        return None

    def attributes(self) -> KeptAttributes:
        """The attributes of the modules, to restore."""
        kept = KeptAttributes()
        for path, module in self._modules.items():
            kept.add(module, path)
        return kept

    @contextmanager
    def preserved(self) -> Generator[None]:
        """Undo the changes that the block makes to optimizers; `ProgramError` if a step made new state."""
        steppers = {prefix: Stepper(optimizer) for prefix, optimizer in self.optimizers.items()}
        new: list[str] = []
        try:
            yield
        finally:
            for prefix, stepper in steppers.items():
                if stepper.new_state():
                    new.append(type(stepper.optimizer).__name__)
                self.changed_numbers |= dict.fromkeys(stepper.changed_numbers(prefix))
                stepper.restore()
        if new:
            raise ProgramError(
                f"export: the step of {new[0]} makes its state while it is recorded; take one step with it first, so "
                "that the state exists"
            )


class Stepper:
    """An optimizer, with a copy of its groups and state from before its step."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._groups = [(group, dict(group)) for group in optimizer.param_groups]
        self._state = optimizer.state
        self._entries = [(key, entry, _copied(entry)) for key, entry in optimizer.state.items()]

    def new_state(self) -> bool:
        """Whether its state has tensors that it did not have before."""
        before = {id(x) for _, _, entry in self._entries for x in _in(entry)}
        return any(id(x) not in before for entry in self.optimizer.state.values() for x in _in(entry))

    def changed_numbers(self, prefix: str) -> list[str]:
        """The names of Python numbers in its groups and its state that have changed."""
        order = {id(p): at for at, p in enumerate(p for group, _ in self._groups for p in group["params"])}
        tables = [
            *[(f"param_groups.{at}", group, before) for at, (group, before) in enumerate(self._groups)],
            *[(f"state.{order.get(id(key), key)}", entry, before) for key, entry, before in self._entries],
        ]
        return [
            _joined(prefix, f"{name}.{key}")
            for name, now, before in tables
            if is_dict(now)
            for key, number in now.items()
            if isinstance(number, (int, float)) and number != before.get(key, number)
        ]

    def restore(self) -> None:
        """Restore the groups and the state."""
        for group, before in self._groups:
            group.clear()
            group.update(before)
        self.optimizer.param_groups[:] = [group for group, _ in self._groups]
        self.optimizer.state = self._state
        self._state.clear()
        for key, entry, before in self._entries:
            if is_dict(entry):
                entry.clear()
                entry.update(before)
            self._state[key] = entry


def _copied(entry: Json) -> PyTree:
    return dict(entry) if is_dict(entry) else entry


def _in(entry: Json) -> list[Tensor]:
    """The tensors in an optimizer's state of a parameter."""
    if isinstance(entry, Tensor):
        return [entry]
    if is_dict(entry):
        return [x for inner in entry.values() for x in _in(inner)]
    if is_list_or_tuple(entry):
        return [x for inner in entry for x in _in(inner)]
    return []


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name
