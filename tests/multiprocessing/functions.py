"""What the processes of the tests run. To import it loads no tensors: most of these processes need none."""

import multiprocessing.util
import os
import select
import signal
import sys
import threading

import weft


def doubled(index, queue, results):
    results.put((index, queue.get() * 2))


def fails(index, failing, others_wait):
    if index == failing:
        raise KeyError("the sky")
    if others_wait:
        threading.Event().wait()


def fails_for_want_of_the_other(index, pids, reported):
    """Process 1 fails, and process 0 because of that; but process 1 ends after it."""
    if index == 0:
        pids.put(os.getpid())
        reported.wait()
        raise ConnectionError("the other is gone")
    other = os.pidfd_open(pids.get())

    def end_last():
        reported.set()
        select.select([other], [], [])

    multiprocessing.util.Finalize(None, end_last, exitpriority=0)
    raise KeyError("the sky")


def fails_before_it_leaves(index, address):
    """Process 1 fails, and destroys its group on the way; process 0 fails for want of it, and ends first."""
    import weft.distributed as dist

    dist.init_process_group("gloo", address, rank=index, world_size=2)
    try:
        if index:
            raise KeyError("the sky")
        dist.all_reduce(weft.ones(1))
    finally:
        dist.destroy_process_group()
        if index:
            threading.Event().wait()  # until the parent ends it


def ends(index, code):
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def tells_much(index):
    raise ValueError("x" * 200_000)


def deaf(index, ready):
    if index == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        ready.set()
        while True:
            signal.pause()
    ready.wait()  # or the other gets SIGTERM before it ignores it
    raise ValueError("after the other is deaf")


def waits(index, ready, ended):
    """Waits for ever, and tells when it is interrupted."""
    try:
        ready.send(os.getpid())
        threading.Event().wait()
    finally:
        ended.send("interrupted")


def returns(index):
    return None


def adds_up(index):
    assert weft.ones(2).sum().item() == 2


def add_one(x):
    x.add_(1)


def write_to_what_comes(there, back):
    """Write to tensors that come together, and tell what they are; then send one back."""
    whole, part, parameter, numbers, storage = there.get()
    whole.add_(1)
    part.fill_(9)
    with weft.no_grad():
        parameter.mul_(2)
    numbers[0, 0] = -1
    storage[44:48] = 0
    kind = type(parameter).__name__
    back.put((kind, parameter.requires_grad, parameter.is_leaf, numbers.stride(), numbers.storage_offset(), True))
    back.put(weft.arange(3).share_memory_())
    there.get()


def loss_of(model, inputs):
    return (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()


def train(model, inputs):
    optimizer = weft.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        loss_of(model, inputs).backward()
        optimizer.step()
