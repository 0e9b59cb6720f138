"""PyTorch's profiler before the last one: the same, with traces that are lists of events."""

from __future__ import annotations

from weft.profiler import _block


class profile(_block.profile):
    """`autograd.profiler.profile`, which exports the events alone."""

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as a list for chrome://tracing or Perfetto, compressed if the path ends with `.gz`."""
        self.function_events.export_chrome_trace(path)
