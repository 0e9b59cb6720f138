"""The interface of rendezvous backends, which hold the shared state, and the errors of failing stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeAlias

from weft._comm.stores.store import Store
from weft.distributed.elastic.rendezvous.utils import fact
from weft.errors import PeerGoneError, RendezvousConnectionError, RendezvousError

Token: TypeAlias = Any  # of whatever class a user's backend likes
"""A backend's identifier of a version of the state."""

STORE_FAILED = "The connection to the C10d store has failed. See inner exception for details."
"""PyTorch's sentence at the start of errors of stores."""


class RendezvousBackend(ABC):
    """Holds one value, which nodes replace by compare-and-set."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the backend."""

    @property
    def store(self) -> Store | None:
        """A store whose requests fail as soon as the backend's do; None if only the handler's store can be used."""
        return None

    @abstractmethod
    def get_state(self) -> tuple[bytes, Token] | None:
        """The value and a token for its version; None if none was set. `RendezvousConnectionError` if it fails."""

    @abstractmethod
    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """Set the value if the token is that of the present version.

        Returns the present value, its token, and whether this call has set it; or None, and then the value is read.
        """


@contextmanager
def store_failures() -> Generator[None]:
    """Raise exceptions of a store as `RendezvousConnectionError`."""
    try:
        yield
    except RendezvousError:
        raise
    except PeerGoneError as error:
        raise RendezvousConnectionError(
            f"{STORE_FAILED} The node that serves the rendezvous has ended, and the state of the job has gone with it; "
            f"start it again, or keep the state in etcd ({fact(error)})"
        ) from error
    except (RuntimeError, ValueError, OSError) as error:  # users' stores raise these, too
        raise RendezvousConnectionError(f"{STORE_FAILED} {error}") from error
