"""What nodes of a rendezvous share, in memory: a status with a version, and keys."""

from weft.distributed.elastic.rendezvous._requests import DeleteKey, GetKey, ReadStatus, Scan, SetKeys, SwapStatus, run
from weft.distributed.elastic.rendezvous._status import Status


class SharedState:
    """Answers the requests of members as a backend and a store do."""

    def __init__(self):
        self.status, self.version, self.values = Status(), 0, {}

    def run(self, operation):
        """Carry out a whole operation."""
        return run(operation, self.answer)

    def answer(self, request):
        match request:
            case ReadStatus():
                return self.status, self.version
            case SwapStatus(status, token):
                was_set = (token or 0) == self.version
                if was_set:
                    self.status, self.version = status, self.version + 1
                return self.status, self.version, was_set
            case GetKey(key):
                return self.values.get(key)
            case SetKeys(pairs):
                self.values.update(pairs)
            case DeleteKey(key):
                self.values.pop(key, None)
            case Scan(prefix):
                return {key: value for key, value in self.values.items() if key.startswith(prefix)}
        return None
