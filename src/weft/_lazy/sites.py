"""The user's lines at which values were recorded, noted only if `XLA_HLO_DEBUG` asks for them."""

from __future__ import annotations

from collections.abc import Iterable

from weft._base.site import user_site
from weft._lazy.value import Value

_MOST = 65_536  # recordings whose lines are kept
_sites: dict[int, str] = {}  # by the number of the recording


def note(values: Iterable[Value]) -> None:
    """Note the current line as that of these values."""
    site = user_site()
    for value in values:
        _sites[value.time] = site
    while len(_sites) > _MOST:
        del _sites[next(iter(_sites))]


def site_of(value: Value) -> str | None:
    """`file:line` of a value's recording, if it was noted."""
    return _sites.get(value.time)
