"""Owners: who takes over calls on a value, in the place of its signatures.

A type refers to the owner of its values (`Aval.owner`), and no signature is kept for such a type unless the owner keeps
one. So the common call never asks whether there is an owner: it finds no signature, and the general path asks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from weft._base.device import device
from weft._base.size import Size, size_of
from weft._base.types import SavedState
from weft.errors import UnsupportedCallError

CallT = TypeVar("CallT")
ValueT = TypeVar("ValueT")
TensorT = TypeVar("TensorT")


@dataclass(frozen=True)
class Stored(Generic[TensorT]):
    """What a file holds of a tensor with an owner.

    kind   by which `restored` finds out how to read it
    facts  what is to be known of it, by name: what checkpoints can hold besides tensors
    parts  the tensors of which it is made, by name
    """

    kind: str
    facts: SavedState
    parts: dict[str, TensorT]


class Distributed(Protocol[ValueT]):
    """What is asked of the owner of tensors of which each process has a part."""

    @property
    def mesh(self) -> Hashable:
        """The processes."""
        ...

    def whole(self, value: ValueT, size: Sequence[int]) -> ValueT:
        """A plain value of this size, which all processes have, as one that is whole on each process of the mesh."""
        ...

    def part(self, value: ValueT) -> ValueT:
        """This process's part of a value that is distributed so, as a plain value."""
        ...

    def seed(self, gradient: ValueT) -> ValueT:
        """The gradient of such a value, which all processes have as a plain value, as a backward pass takes it."""
        ...


class Owner(Protocol[CallT, ValueT, TensorT]):
    """Who takes over calls on a value: an encoding by other tensors, a sharding over processes, or something else.

    A class derives from it (from `TensorOwner`), has the first four methods, and changes of the others what it wants
    to: they refuse, or hand on what they get. Owners are part of types, which are compared by identity, so owners are,
    too. Calls, values and tensors are defined in modules above this one: their classes are parameters.

    tensor_type  the class of the tensors
    advice       what a program can do instead of a call that is refused
    """

    tensor_type: type[TensorT]
    advice: ClassVar[str] = "make a plain tensor of it first"

    @abstractmethod
    def apply(self, call: CallT, inputs: tuple[ValueT, ...]) -> tuple[ValueT, ...]:
        """The results of a call on inputs of which one has this owner, and those before it have none."""
        ...

    @abstractmethod
    def describe(self) -> str:
        """What it makes of a tensor, as messages say it after "a tensor of"."""
        ...

    @abstractmethod
    def move(self, value: ValueT, target: device) -> ValueT:
        """A value of this owner, on another device."""
        ...

    @abstractmethod
    def save(self, value: ValueT) -> Stored[TensorT]:
        """What files and pickles hold of a value of this owner."""
        ...

    @property
    def distributed(self) -> Distributed[ValueT] | None:
        """Itself, if each process has a part of a tensor of this owner."""
        return None

    def whole_size(self, shape: tuple[int, ...]) -> Size:
        """The size of a tensor as users get it, from that of its array."""
        return size_of(shape)

    def refusal(self, name: str, why: str = "") -> UnsupportedCallError:
        """The error for an operator that it has no rule for, with what prevents one."""
        return UnsupportedCallError(f"{name}() has no rule for a tensor of {self.describe()}{why}; {self.advice}")

    def type_like(self, kind: type[TensorT]) -> type[TensorT]:
        """The class of its tensors that are also of this class, such as a parameter or a buffer."""
        if issubclass(self.tensor_type, kind):
            return self.tensor_type
        raise self.refusal(kind.__name__)

    def created(self, size: Sequence[int], create: Callable[[Sequence[int], int], ValueT], row: str) -> ValueT:
        """A new value of this size, as by `zeros_like` of a tensor of this owner.

        `create(size, first)` makes a plain value by the factory `row`: the whole, or a part of it whose first element
        is at this position.
        """
        del row
        return create(size, 0)

    def to_owner(self, value: ValueT, owner: Owner[CallT, ValueT, TensorT] | None) -> ValueT:
        """A value that is written to a tensor with another owner, or to a plain one; one of the two is this owner.

        `RuntimeError` where there is no way.
        """
        del value
        raise self.refusal("copy_", "" if owner is None else f", where one of {owner.describe()} is involved")

    def of_gradient(self, gradient: ValueT) -> ValueT:
        """The gradient of a value of this owner, as a backward pass leaves it, as users get it."""
        return gradient

    def to_cotangent(self, gradient: ValueT, text: str) -> ValueT:
        """The reverse, for what users give; `text` is how errors call the gradient."""
        del text
        return gradient
