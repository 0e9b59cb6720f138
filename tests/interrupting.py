"""Interrupts at random times."""

import random
import signal
import sys

from weft._base.interrupts import keep_ignored_interrupts

SIGNALS = {signal.ITIMER_VIRTUAL: signal.SIGVTALRM, signal.ITIMER_REAL: signal.SIGALRM}


class Interrupts:
    """Interrupts after random stretches of time, by the handler of a signal.

    The time is that in which the process computes, so that a busy machine does not make the interrupts denser; with
    `ITIMER_REAL` it is real time, and interrupts come while the process waits for others, too.
    """

    def __init__(self, seed, longest, timer=signal.ITIMER_VIRTUAL):
        self._armed = self._ended = False
        self._timer = timer
        self._random = random.Random(seed)
        self._longest = longest

    def __enter__(self):
        self._before = signal.signal(SIGNALS[self._timer], self._on_signal)
        self._hook = sys.unraisablehook  # pytest has set its own
        keep_ignored_interrupts()
        self._wait()
        return self

    def __exit__(self, *_):
        self._ended = True  # Python may call the handler for a signal that came before, after the timer is stopped
        signal.setitimer(self._timer, 0)
        signal.signal(SIGNALS[self._timer], self._before)
        sys.unraisablehook = self._hook

    def _wait(self):
        signal.setitimer(self._timer, self._random.uniform(1e-4, self._longest))

    def _on_signal(self, number, frame):
        if self._ended:
            return
        self._wait()
        if self._armed:
            self._armed = False  # or a second one comes where the first is caught
            raise KeyboardInterrupt

    def interrupts(self, function):
        """Call a function; returns whether it was interrupted."""
        try:
            self._armed = True
            function()
            self._armed = False
        except KeyboardInterrupt:
            return True
        return False
