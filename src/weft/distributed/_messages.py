"""Sends and receives in progress, as backends start them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import jax
import numpy as np

Array = jax.Array | np.ndarray


class Message(Protocol):
    """A send or receive in progress."""

    @property
    def done(self) -> bool:
        """Whether it is complete."""
        ...

    def wait(self) -> tuple[Sequence[Array], int]:
        """The received arrays (none for a send) and the other rank. It moves all messages of the group meanwhile."""
        ...


class CompleteMessage:
    """A message that has come or gone, such as that of a tensor without elements, for which nothing is sent."""

    done = True

    def __init__(self, received: Sequence[Array], peer: int) -> None:
        self._received, self._peer = received, peer

    def wait(self) -> tuple[Sequence[Array], int]:
        """What was received, and the other rank."""
        return self._received, self._peer


class FollowedMessage:
    """A message whose end others want to know; `wait` is that of the message, and tells them."""

    def __init__(self, message: Message, wait: Callable[[], tuple[Sequence[Array], int]]) -> None:
        self._message, self._wait = message, wait

    @property
    def done(self) -> bool:
        return self._message.done

    def wait(self) -> tuple[Sequence[Array], int]:
        return self._wait()
