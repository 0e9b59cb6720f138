"""Rendezvous: how the nodes of a job find each other, at the start and after each change."""

from weft.distributed.elastic.rendezvous.api import RendezvousHandler as RendezvousHandler
from weft.distributed.elastic.rendezvous.api import RendezvousHandlerCreator as RendezvousHandlerCreator
from weft.distributed.elastic.rendezvous.api import RendezvousHandlerRegistry as RendezvousHandlerRegistry
from weft.distributed.elastic.rendezvous.api import RendezvousInfo as RendezvousInfo
from weft.distributed.elastic.rendezvous.api import RendezvousParameters as RendezvousParameters
from weft.distributed.elastic.rendezvous.api import RendezvousStoreInfo as RendezvousStoreInfo
from weft.distributed.elastic.rendezvous.api import rendezvous_handler_registry as rendezvous_handler_registry
from weft.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler as DynamicRendezvousHandler
from weft.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend as RendezvousBackend
from weft.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousTimeout as RendezvousTimeout
from weft.distributed.elastic.rendezvous.registry import get_rendezvous_handler as get_rendezvous_handler
from weft.errors import RendezvousClosedError as RendezvousClosedError
from weft.errors import RendezvousConnectionError as RendezvousConnectionError
from weft.errors import RendezvousError as RendezvousError
from weft.errors import RendezvousGracefulExitError as RendezvousGracefulExitError
from weft.errors import RendezvousStateError as RendezvousStateError
from weft.errors import RendezvousTimeoutError as RendezvousTimeoutError
