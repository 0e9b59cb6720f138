"""How much an archive may unpack to."""

from __future__ import annotations

from collections.abc import Sequence
from zipfile import ZipInfo

_MOST_MEMBERS = 100_000
_MOST_RATIO = 100
_SMALL = 1 << 26  # bytes that may be unpacked whatever the ratio


def excess(members: Sequence[ZipInfo], length: int, most_bytes: int | None = None) -> str | None:
    """What an archive of `length` bytes has too much of, None where it is in order; no member is unpacked for it.

    Unpacking gives no more bytes than the directory says, so its sizes can be relied upon.
    """
    total = sum(member.file_size for member in members)
    if len(members) > _MOST_MEMBERS:
        return f"it has {len(members)} members, and may have {_MOST_MEMBERS}"
    if most_bytes is not None and total > most_bytes:
        return f"it would unpack to {total} bytes, and may to {most_bytes}"
    if total > max(_SMALL, _MOST_RATIO * length):
        return f"its {length} bytes would unpack to {total}, more than {_MOST_RATIO} times as many"
    return None
