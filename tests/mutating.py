"""Files, and values of files, in which something has been changed: for tests of what reads them."""

from __future__ import annotations

import random
from typing import Any

VALUES = (
    None,
    True,
    -1,
    0,
    3,
    1 << 31,
    1 << 63,
    1 << 70,
    1.5,
    float("nan"),
    "",
    "x",
    "..",
    "a/b",
    [],
    {},
    [[]],
    {"x": 1},
)


def mutated(x: Any, draw: random.Random) -> Any:
    """A nested value of dicts, lists and tuples, with one part of it replaced, left out, doubled or exchanged."""
    if not isinstance(x, (dict, list, tuple)) or not x or draw.random() < 0.1:
        return draw.choice(VALUES)
    items = list(x.items()) if isinstance(x, dict) else list(x)
    at = draw.randrange(len(items))
    match draw.choice(["inside"] * 8 + ["left out", "doubled", "exchanged"]):
        case "left out":
            del items[at]
        case "doubled":
            items.insert(at, items[at])
        case "exchanged":
            other = draw.randrange(len(items))
            if isinstance(x, dict):
                items[at], items[other] = (items[at][0], items[other][1]), (items[other][0], items[at][1])
            else:
                items[at], items[other] = items[other], items[at]
        case _ if isinstance(x, dict):
            items[at] = (items[at][0], mutated(items[at][1], draw))
        case _:
            items[at] = mutated(items[at], draw)
    return type(x)(items)


def mutated_often(x: Any, draw: random.Random) -> Any:
    """`mutated`, one to three times."""
    for _ in range(draw.randint(1, 3)):
        x = mutated(x, draw)
    return x


def damage(content: bytes, draw: random.Random) -> bytes:
    """Bytes that are changed, cut out, doubled, or put in."""
    content = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(content) + 1)
        end = min(len(content), at + draw.choice([0, 1, 2, 8, 100]))
        match draw.randrange(4):
            case 0:
                content[at:end] = draw.randbytes(end - at)
            case 1:
                del content[at:end]
            case 2:
                content[at:at] = content[at:end] * draw.choice([1, 2, 100])
            case 3:
                content[at:at] = draw.choice([b"0", b"9" * 30, b"\xff" * 8, b"h\x00", b"}", b"(", b"[", b"-1", b"1e9"])
    return bytes(content)
