"""Interrupts at random times."""

import random
import signal
import sys

from weft._base.interrupts import keep_ignored_interrupts


class Interrupts:
    """Interrupts after random stretches of the process's time, by the handler of a signal."""

    def __init__(self, seed, longest):
        self._armed = False
        self._random = random.Random(seed)
        self._longest = longest

    def __enter__(self):
        self._before = signal.signal(signal.SIGVTALRM, self._on_signal)
        self._hook = sys.unraisablehook  # pytest has set its own
        keep_ignored_interrupts()
        self._wait()
        return self

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._before)
        sys.unraisablehook = self._hook

    def _wait(self):
        signal.setitimer(signal.ITIMER_VIRTUAL, self._random.uniform(1e-4, self._longest))

    def _on_signal(self, number, frame):
        self._wait()
        if self._armed:
            raise KeyboardInterrupt

    def interrupts(self, function):
        """Call a function; returns whether it was interrupted."""
        try:
            self._armed = True
            function()
            self._armed = False
        except KeyboardInterrupt:
            self._armed = False
            return True
        return False
