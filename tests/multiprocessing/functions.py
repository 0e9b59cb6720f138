"""What the processes of the tests run."""

import os
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


def ends(index, code):
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def tells_much(index):
    raise ValueError("x" * 200_000)


def deaf(index, ready):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    if index == 0:
        while True:
            signal.pause()
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
