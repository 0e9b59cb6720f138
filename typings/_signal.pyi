"""The functions of C below those of `signal`, as far as they are used."""

from collections.abc import Callable
from types import FrameType
from typing import Any

def getsignal(signalnum: int, /) -> Any: ...
def signal(signalnum: int, handler: Callable[[int, FrameType | None], Any] | int, /) -> Any: ...
