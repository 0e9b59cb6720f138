"""What nodes of a rendezvous share, in memory: a notice with a version, and keys."""

from weft.distributed.elastic.rendezvous._member import Get, Read, Remove, Swap, Under, Write
from weft.distributed.elastic.rendezvous._round import Notice


class SharedState:
    """Answers the requests of members as a backend and a store do."""

    def __init__(self):
        self.notice, self.version, self.values = Notice(), 0, {}

    def take(self, act):
        """Carry out a whole act."""
        answer = None
        while True:
            try:
                answer = self.answer(act.send(answer))
            except StopIteration as end:
                return end.value

    def answer(self, request):
        match request:
            case Read():
                return self.notice, self.version
            case Swap(notice, token):
                was_set = (token or 0) == self.version
                if was_set:
                    self.notice, self.version = notice, self.version + 1
                return self.notice, self.version, was_set
            case Get(key):
                return self.values.get(key)
            case Write(pairs):
                self.values.update(pairs)
            case Remove(key):
                self.values.pop(key, None)
            case Under(prefix):
                return {key: value for key, value in self.values.items() if key.startswith(prefix)}
        return None
