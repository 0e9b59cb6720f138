"""The user's lines at which values were made, noted while somebody asks for them and in captured functions."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from weft._base.site import Noting, user_site
from weft._base.state import set_field
from weft._lazy.value import Value

# no cell: only texts and reports depend on it
_sites: WeakKeyDictionary[Value, str] = WeakKeyDictionary()


def note_from_now_on(on: bool) -> None:
    """Note lines, or stop, in this thread and in those that start later."""
    Noting.on = on
    set_field()  # which is read at every recording


def note(values: Iterable[Value]) -> None:
    """Note the current line as that of these values, and of what their application keeps for its derivative."""
    site = user_site()
    for value in values:
        _sites[value] = site
        if value.origin is not None and value.extras:
            _sites.update(dict.fromkeys(value.extras, site))


def noted(leaf: Value) -> Value:
    """A new leaf, after its line was noted if lines are."""
    if Noting.on:
        note((leaf,))
    return leaf


def site_of(value: Value) -> str | None:
    """`file:line` of a value's recording, if it was noted."""
    return _sites.get(value)
