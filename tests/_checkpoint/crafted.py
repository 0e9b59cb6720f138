"""Files and pickles put together by hand, as hostile ones are."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path

FILES = Path(__file__).parent / "files"
END = b"."


def archive(pickled: bytes, *, compression=zipfile.ZIP_STORED, **members: bytes) -> bytes:
    """An archive as PyTorch writes them; `members` are storages by key, or members by name."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as zipped:
        zipped.writestr("x/data.pkl", pickled)
        for name, content in members.items():
            zipped.writestr(f"x/{name}" if not name.startswith("_") else f"x/data/{name[1:]}", content)
    return file.getvalue()


def text(value: str) -> bytes:
    """A string in a pickle."""
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def number(value: int) -> bytes:
    """An integer in a pickle."""
    return b"I%d\n" % value


def tuple_of(*parts: bytes) -> bytes:
    """A tuple in a pickle."""
    return b"(" + b"".join(parts) + b"t"


def named(module: str, name: str) -> bytes:
    """A global in a pickle."""
    return f"c{module}\n{name}\n".encode()


def called(function: bytes, *args: bytes) -> bytes:
    """The result of a function in a pickle."""
    return function + tuple_of(*args) + b"R"


def stored(key: str = "0", count: int = 2, kind: str = "FloatStorage", location: str = "cpu") -> bytes:
    """A storage in a pickle."""
    return tuple_of(text("storage"), named("torch", kind), text(key), text(location), number(count)) + b"Q"


def rebuilt(storage: bytes, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """A tensor in a pickle."""
    sizes, strides = (tuple_of(*map(number, numbers)) for numbers in (size, stride))
    return called(named("torch._utils", "_rebuild_tensor_v2"), storage, number(offset), sizes, strides, b"\x89", b"N")
