"""What compiled functions have done so far in this process, in numbers."""

from __future__ import annotations

from collections import Counter, defaultdict

# no cell: only reports depend on it
counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
"""By subject: "stats" has the numbers of graphs and of calls in them, "graph_break" those of the reasons."""
