"""Signatures: operators applied to inputs of given types, with the function, the preconditions and the result types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax

from weft._base.device import device
from weft._base.dtype import from_numpy
from weft._lazy.trace import SizeValues, Trace, traced
from weft._lazy.value import INTERIOR, Aval, Tape, aval_of
from weft.errors import WeftError

if TYPE_CHECKING:
    from weft._lazy.general import General
    from weft._lazy.infer import Call
    from weft._lazy.interpreter import Costs

Arrays = tuple[jax.Array, ...]


def structs_of(avals: Sequence[Aval]) -> list[jax.ShapeDtypeStruct]:
    """The structs that represent values of these types when jax traces a function."""
    return [jax.ShapeDtypeStruct(a.shape, a.dtype.numpy) for a in avals]


class Output:
    """One output of a signature. Values refer to it; its identity is a part of a program's key.

    alone     whether the signature has no other output and no precondition
    taped     the tape of values through which gradients flow
    """

    __slots__ = ("alone", "aval", "index", "signature", "taped")

    def __init__(self, signature: Signature, index: int, aval: Aval, taped: Tape | None) -> None:
        self.signature = signature
        self.index = index
        self.aval = aval
        self.taped = taped
        self.alone = True


class ErrorTemplate:
    """The error for invalid input values; `finding()` interprets codes (`ops/_findings.py`)."""

    __slots__ = ("error", "finding", "template")

    def __init__(self, error: type[WeftError], template: str, finding: Callable[[], Any]) -> None:
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
        codes: Callable[..., list[Any]],
        templates: list[ErrorTemplate],
        *,
        on_host: bool = False,
        waits: bool = False,
    ) -> None:
        self.codes = codes
        self.templates = templates
        self.on_host = on_host
        self.waits = waits


class Signature:
    """An application by types: what it computes, and the types that come out.

    fn        arrays -> tuple of arrays, one per output
    main      how many outputs are the operator's; the rest only serve its derivative
    precondition   what must hold of the inputs' values, or None
    doubtful  whether it has a precondition, or is the derivative of a signature that has one
    grads     (arrays, outputs, cotangents of the main outputs) -> one gradient or None per input, where the
              row has a hand-written derivative; or None
    rounds    whether floating results must be passed through `rewrite_barrier` before another application takes them
    trace     `fn` as it was traced for these types
    general   what computes it for all sizes, and which they are here, where that is known
    run       a function that computes it on NumPy arrays, set at its first use (`_lazy/interpreted.py`)
    costs     what it costs in either tier, known when `run` is
    derived   derivatives by which inputs and outputs take part (`_autograd/derive.py`)
    """

    __slots__ = (
        "avals",
        "call",
        "check",
        "costs",
        "derived",
        "doubtful",
        "fn",
        "general",
        "grads",
        "main",
        "name",
        "outputs",
        "precondition",
        "rounds",
        "run",
        "trace",
    )
    check: Any  # the precondition as a signature (`_lazy/checks.py`)

    def __init__(
        self,
        name: str,
        fn: Callable[..., Arrays],
        avals: tuple[Aval, ...],
        *,
        device: device,
        aux: int = 0,
        differentiable: bool = True,
        call: Call | None = None,
        precondition: Precondition | None = None,
        grads: Callable[..., Sequence[jax.Array | None]] | None = None,
        rounds: bool = True,
        trace: Trace | None = None,
        general: tuple[General, SizeValues] | None = None,
    ) -> None:
        self.general = general
        self.name = name
        self.fn = fn
        self.avals = avals
        self.call = call
        self.check = None
        self.grads = grads
        self.rounds = rounds
        self.derived: dict[Any, Any] = {}
        self.trace = trace or traced(fn, structs_of(avals))
        self.run: Callable[[Sequence[Any]], Sequence[Any]] | None = None
        self.costs: Costs | None = None
        smooth = differentiable and any(a.dtype.is_differentiable and not a.weak for a in avals)
        outputs = []
        for index, (shape, dtype) in enumerate(self.trace.types()):
            aval = aval_of(shape, from_numpy(dtype), device=device)
            taped = INTERIOR if smooth and aval.dtype.is_differentiable else None
            outputs.append(Output(self, index, aval, taped))
        self.outputs = tuple(outputs)
        self.require(precondition)
        self.main = len(outputs) - aux

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.avals))})"

    def require(self, precondition: Precondition | None, *, doubtful: bool = False) -> None:
        """Set the precondition; without one, `doubtful` marks the derivative of a signature that has one."""
        self.precondition = precondition
        self.doubtful = doubtful or precondition is not None
        for output in self.outputs:
            output.alone = len(self.outputs) == 1 and not self.doubtful
