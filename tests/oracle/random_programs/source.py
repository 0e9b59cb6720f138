"""Running the lines of a program over a library, be it PyTorch or Weft."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from types import CodeType
from typing import Any

HEAD = "import copy\n\nimport torch\n\n"


def text(lines: Sequence[str]) -> str:
    """A program as one can run it over PyTorch."""
    return HEAD + "\n".join(lines)


class Run:
    """A program that has run over a library: its variables, and what its lines raised, by their numbers."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.scope: dict[str, Any] = {"torch": library, "copy": copy}
        self.errors: dict[int, Exception] = {}
        self.count = 0

    def step(self, line: str) -> Exception | None:
        """Run one more line."""
        number, self.count = self.count, self.count + 1
        try:
            exec(_compiled(line), self.scope)
        except Exception as error:
            self.errors[number] = error.with_traceback(None)
        return self.errors.get(number)

    @property
    def variables(self) -> dict[str, Any]:
        """What the program has left, by name."""
        return {name: x for name, x in self.scope.items() if name[0] in "tr" and name[1:].isdigit()}

    @property
    def tensors(self) -> dict[str, Any]:
        """The tensors that the program has left, by name."""
        return {name: x for name, x in self.variables.items() if isinstance(x, self.library.Tensor)}


@lru_cache(maxsize=65536)
def _compiled(line: str) -> CodeType:
    return compile(line, "<program>", "exec")


def run(
    lines: Sequence[str],
    library: Any,
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    between: Callable[[Run], None] = lambda run: None,
) -> Run:
    """Run a program to its end, in the context that `around` makes, with `between` called after each line."""
    found = Run(library)
    with warnings.catch_warnings(), around():
        warnings.simplefilter("ignore")
        for line in lines:
            found.step(line)
            between(found)
    return found
