"""Preconditions: what must hold of the values of an application's inputs, or its results mean nothing."""

from __future__ import annotations

from collections.abc import Callable

from weft._base.types import Arg, Result
from weft._lazy.native import native
from weft.errors import WeftError


class ErrorTemplate:
    """The error for invalid input values; `finding()` interprets codes (`ops/_findings.py`)."""

    __slots__ = ("error", "finding", "template")

    def __init__(self, error: type[WeftError], template: str, finding: Callable[[], Result]) -> None:
        self.error = error
        self.template = template
        self.finding = finding

    def text(self, code: int) -> str:
        """The error's text for a code that is not 0."""
        return self.finding().text(self.template, code)


class Precondition:
    """A condition on a signature's input values without which its results are invalid.

    codes       arrays -> for each template an int64, 0 unless it applies
    templates   in the order of the codes
    on_host     whether `codes` also takes NumPy arrays
    waits       whether a call waits for the codes, because programs catch the error, as of failed factorisations
    """

    __slots__ = ("codes", "on_host", "templates", "waits")

    def __init__(
        self,
        codes: Callable[..., list[Arg]],
        templates: list[ErrorTemplate],
        *,
        on_host: bool = False,
        waits: bool = False,
    ) -> None:
        self.codes = codes
        self.templates = templates
        self.on_host = on_host
        self.waits = waits


if native is not None:
    native.bind(Precondition=Precondition)
