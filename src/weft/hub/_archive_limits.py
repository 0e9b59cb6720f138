"""Limits on the size of unpacked archives."""

from __future__ import annotations

from collections.abc import Sequence
from zipfile import ZipInfo

_MOST_MEMBERS = 100_000
_MOST_RATIO = 100
_SMALL = 1 << 26  # bytes that may always be unpacked, whatever the ratio


def excess(members: Sequence[ZipInfo], length: int, most_bytes: int | None = None) -> str | None:
    """The reason why an archive of `length` bytes is refused, or None. No member is unpacked for it.

    The sizes in the archive's directory can be trusted: unpacking never gives more bytes than they say.
    """
    total = sum(member.file_size for member in members)
    if len(members) > _MOST_MEMBERS:
        return f"it has {len(members)} members, and may have {_MOST_MEMBERS}"
    if most_bytes is not None and total > most_bytes:
        return f"it would unpack to {total} bytes, and may to {most_bytes}"
    if total > max(_SMALL, _MOST_RATIO * length):
        return f"its {length} bytes would unpack to {total}, more than {_MOST_RATIO} times as many"
    return None
