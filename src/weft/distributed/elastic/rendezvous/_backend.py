"""The interface of rendezvous backends, which keep the shared state, and the errors for failures of stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft._comm.stores.store import Store
from weft.distributed.elastic.rendezvous.utils import fact
from weft.errors import PeerGoneError, RendezvousConnectionError, RendezvousError

Token = Any
"""A backend's identifier of a version of its state."""

STORE_FAILED = "The connection to the C10d store has failed. See inner exception for details."
"""PyTorch's sentence, with which errors of stores begin."""


class RendezvousBackend(ABC):
    """Keeps one value that nodes replace by compare-and-set."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the backend."""

    @property
    def store(self) -> Store | None:
        """A store whose requests fail as soon as the backend's do; None where only the handler's is known."""
        return None

    @abstractmethod
    def get_state(self) -> tuple[bytes, Token] | None:
        """The value and a token for its version; None when nothing was set. `RendezvousConnectionError` if it fails."""

    @abstractmethod
    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """Set the value if the token names the present version.

        Returns the present value, its token, and whether it was set now; None when there is no value.
        """


@contextmanager
def store_failures() -> Iterator[None]:
    """Turn exceptions of a store into a `RendezvousConnectionError`."""
    try:
        yield
    except RendezvousError:
        raise
    except PeerGoneError as error:
        raise RendezvousConnectionError(
            f"{STORE_FAILED} The node that serves the rendezvous has ended, and the state of the job has gone with it; "
            f"start it again, or keep the state in etcd ({fact(error)})"
        ) from error
    except (RuntimeError, ValueError, OSError) as error:  # what stores of users raise, too
        raise RendezvousConnectionError(f"{STORE_FAILED} {error}") from error
