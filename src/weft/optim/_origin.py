"""Which optimizer a state dict is of. It does not say so itself, but its options and the names of its state do."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from weft._base.own_names import own_form
from weft._base.types import Arg
from weft._tensor.tensor import Tensor

Names = frozenset[str]


def other_optimizer(optimizer: Arg, group: Mapping[str, object], kinds: Iterable[type]) -> str:
    """The names of those of `kinds` whose group this is, if it is none of the optimizer's; else "".

    Options that are in neither are ignored: schedulers and users put their own into groups. An older version of the
    optimizer has fewer options, so only those that are numbers are missed, and only if there are others in their place.
    A group with exactly the options of another optimizer is that optimizer's; a user's may have had these once.
    """
    options = {kind: _options(kind) for kind in kinds}
    own = frozenset(optimizer.defaults)
    # PyTorch loads the state of another kind and fails, or computes nonsense, in a later step; options are what tells
    # kinds apart.
    saved = own.union(*options.values()).intersection(group)
    if saved == own:
        return ""
    numbers = {kind: frozenset(filter(names.get, names)) for kind, names in options.items()}
    own_numbers = frozenset(name for name, value in optimizer.defaults.items() if _is_number(value))
    saved_numbers = saved.intersection(own_numbers.union(*numbers.values()))
    exact = [kind for kind, names in options.items() if saved == names.keys()]
    if exact and type(optimizer) in options:
        return _named(exact)
    replaced = bool(own_numbers - saved_numbers) and bool(saved_numbers - own_numbers)
    return _named(exact or [kind for kind in options if saved_numbers == numbers[kind]]) if replaced else ""


def _named(kinds: Iterable[type]) -> str:
    return " or ".join(sorted(kind.__name__ for kind in kinds))


def kinds_of(base: type) -> Iterator[type]:
    """The optimizers of this package, of a base class."""
    for kind in base.__subclasses__():
        yield from kinds_of(kind)
        if own_form(kind.__module__).startswith(f"{__package__}.") and "__init__" in vars(kind) and _options(kind):
            yield kind


@cache
def _options(kind: type) -> dict[str, bool]:
    """The options of an optimizer, also those that its base sets, and whether each is a number."""
    options: dict[str, bool] = {}
    for base in kind.__mro__:
        if "__init__" in vars(base) and own_form(base.__module__).startswith(f"{__package__}."):
            parameters = inspect.signature(base.__init__).parameters
            if "defaults" in parameters:  # an abstract base
                break
            options = {name: _is_number(x.default) for name, x in parameters.items()} | options
    return {name: is_number for name, is_number in options.items() if name not in ("self", "params")}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, tuple, list, Tensor)) and not isinstance(value, bool)
