"""Load on workers: calls, references, long tensors and backward passes, all at a time, whose outcomes are checked."""

from __future__ import annotations

import random
import re
import threading
import time

import weft as torch
from weft.distributed import autograd, rpc

_WORKER = r"WorkerInfo\(id=\d+, name=(\w+)\)"
_LOST = re.compile(
    rf"worker (\w+) was lost|cannot (?:reach|call) {_WORKER}|{_WORKER} has left|find destination name (\w+)|"
    rf"On {_WORKER}:\nRpcError\('RPC has not been initialized"
)

_LONG = 1 << 18  # elements of a tensor of 1 MB


def same(x):
    return x


def add(x, y):
    return x + y


def twice(x):
    return 2 * x


def onward(to, function, *args):
    return rpc.rpc_sync(to, function, args)


def here(ref):
    return ref.to_here()


def hold(number):
    return rpc.RRef(number)


def _calls(to, over, number):
    assert rpc.rpc_sync(to, same, (number,)) == number
    futures = [rpc.rpc_async(to, add, (number, at)) for at in range(8)]
    assert [future.wait() for future in futures] == [number + at for at in range(8)]
    assert rpc.rpc_sync(over, onward, (to, same, number)) == number


def _references(to, over, number):
    ref = rpc.remote(to, add, (number, 1))
    assert rpc.rpc_sync(over, here, (ref,)) == number + 1
    assert ref.rpc_sync().__add__(1) == number + 2
    assert rpc.rpc_sync(over, hold, (number,)).to_here() == number
    assert rpc.remote(over, hold, (ref,)).to_here().to_here().to_here() == number + 1


def _long_tensors(to, over, number):
    x = torch.full((_LONG,), float(number))
    assert torch.equal(rpc.rpc_sync(to, same, (x,)), x)
    assert torch.equal(rpc.remote(over, same, (x,)).to_here(), x)


def _passes(to, over, number):
    x = torch.tensor([1.0, float(number)], requires_grad=True)
    with autograd.context() as context:
        y = rpc.rpc_sync(over, onward, (to, twice, x)) + rpc.rpc_sync(to, twice, (x,))
        autograd.backward(context, [y.sum()])
        assert autograd.get_gradients(context)[x].tolist() == [4, 4]


class Load:
    """Threads that call workers until `stop`; each may call the next over another one.

    What they see goes wrong is in `errors`, by the name of the worker that the error names; anything else is in
    `wrongs`. Workers in `errors` are called again only after `forgive`.
    """

    def __init__(self, names, seed):
        self.errors = {}
        self.wrongs = []
        self.rounds = 0
        self._names = list(names)
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(work, random.Random(f"{seed} {work.__name__}")), daemon=True)
            for work in (_calls, _references, _long_tensors, _passes)
        ]
        for thread in self._threads:
            thread.start()

    def forgive(self, name):
        """Call a worker again."""
        self.errors.pop(name, None)

    def stop(self, seconds):
        """Stop; whether all threads have ended within some seconds."""
        self._stopped.set()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, work, chance):
        while not self._stopped.is_set():
            living = [name for name in self._names if name not in self.errors]
            if not living:
                time.sleep(0.01)  # others are still to come
                continue
            to, over = chance.choice(living), chance.choice(living)
            try:
                work(to, over, chance.randrange(1000))
                self.rounds += 1
            except RuntimeError as error:
                self._failed(work, {to, over}, error)
            except BaseException as error:
                self.wrongs.append(f"{work.__name__}: {error!r}")

    def _failed(self, work, called, error):
        lost = _LOST.search(str(error))
        named = lost and lost[lost.lastindex]
        if named in called:
            self.errors[named] = str(error)
        else:
            self.wrongs.append(f"{work.__name__} of {called}: {error}")
