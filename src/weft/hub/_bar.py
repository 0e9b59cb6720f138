"""The progress bar that libraries of datasets take from here: tqdm's if it is installed."""

from __future__ import annotations

import sys
from typing import Self

try:
    from tqdm.auto import tqdm as tqdm  # pyright: ignore[reportAssignmentType, reportMissingModuleSource]
except ImportError:

    class tqdm:
        """Counts what is done, and shows the number on stderr at the end."""

        def __init__(self, total: float | None = None, disable: bool = False, **_: object) -> None:
            self.total = total
            self.disable = disable
            self.n = 0

        def update(self, n: int = 1) -> None:
            """Count `n` more."""
            self.n += n

        def set_description(self, *_: object, **__: object) -> None:
            """Does nothing."""

        def close(self) -> None:
            """Show the number."""
            if not self.disable:
                print(f"{self.n} of {self.total}" if self.total is not None else self.n, file=sys.stderr)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()
