"""Signatures: operators applied to inputs of given types, with the function, the preconditions and the result types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy

import jax

from weft._base.device import device
from weft._base.dtype import from_numpy
from weft._base.timeline import Phase, spanned
from weft._base.types import AnyCallable, Arg
from weft._lazy.aval import Aval, aval_of, named
from weft._lazy.call import BoundOp
from weft._lazy.general import Derivatives, General, Grads
from weft._lazy.interpreter import Costs, Interpreted
from weft._lazy.interpreter.machine import Form
from weft._lazy.native import native
from weft._lazy.precondition import Precondition
from weft._lazy.role import INTERIOR, Role
from weft._lazy.trace import SizeValues, Trace, traced
from weft.ops._dims import Names
from weft.ops._replicas import has_collectives, is_replicated

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

    def __init__(self, signature: Signature, index: int, aval: Aval, taped: Role | None) -> None:
        self.signature = signature
        self.index = index
        self.aval = aval
        self.taped = taped
        self.alone = True


class Execution:
    """How an application is run other than by compiling `Signature.fn`, and what that costs.

    native      what compiled programs on its device run instead of `fn`, or None
    host        what computes it on NumPy arrays instead of the trace, or None: one result, which may be a view
    overwrites  whether `host` writes to its first argument

    `_lazy/interpreted.py` sets the others at their first use:

    interpreted  the trace for the interpreter, in a tuple; None in it if that lacks a primitive
    forms        the trace for the machine, by how its inputs lie
    run          a function that computes it on NumPy arrays
    plain_run    the same without the machine
    costs        what it costs in either tier
    """

    __slots__ = ("costs", "forms", "host", "interpreted", "native", "overwrites", "plain_run", "run")

    def __init__(self, native: Callable[..., Arrays] | None) -> None:
        self.native = native
        self.host: AnyCallable | None = None
        self.overwrites = False
        self.interpreted: tuple[Interpreted | None] | None = None
        self.forms: dict[tuple[tuple[int, ...], ...], Form] = {}
        self.run: Callable[[Sequence[Arg]], Sequence[Arg]] | None = None
        self.plain_run: Callable[[Sequence[Arg]], Sequence[Arg]] | None = None
        self.costs: Costs | None = None


class Requirement:
    """What an application asks of its inputs' values. Its outputs are in doubt until that is known to hold.

    precondition  what must hold; None for a derivative, which shares the doubt of its application
    check         the precondition as a signature, once it has been needed (`_lazy/checks.py`)
    """

    __slots__ = ("check", "precondition")
    check: Arg

    def __init__(self, precondition: Precondition | None) -> None:
        self.precondition = precondition
        self.check = None


class Signature:
    """An application by types: what it computes, and the types that come out.

    fn           arrays -> tuple of arrays, one per output
    main         how many outputs are the operator's; the rest only serve its derivative
    trace        `fn` as it was traced for these types
    general      what computes it for all sizes, and which they are here, where that is known
    collective   whether it exchanges data with the other replicas
    rounds       whether floating results must be passed through `rewrite_barrier` before another application takes them
    parts        of a function that was captured as one application: its own
    sites        of these, the user's lines at the first capture of such a function, where they were noted
    execution    how it is run other than by compiling `fn`
    derivatives  how it is differentiated
    requirement  what it asks of its inputs' values, or None
    """

    __slots__ = (
        "avals",
        "call",
        "collective",
        "derivatives",
        "execution",
        "fn",
        "general",
        "main",
        "name",
        "outputs",
        "parts",
        "requirement",
        "rounds",
        "sites",
        "trace",
    )

    @spanned(Phase.INFERENCE, "signature")
    def __init__(
        self,
        name: str,
        fn: Callable[..., Arrays],
        avals: tuple[Aval, ...],
        *,
        device: device,
        aux: int = 0,
        differentiable: bool = True,
        call: BoundOp | None = None,
        precondition: Precondition | None = None,
        grads: Grads | None = None,
        rounds: bool = True,
        trace: Trace | None = None,
        general: tuple[General, SizeValues] | None = None,
        names: Sequence[Names | None] = (),
        native: Callable[..., Arrays] | None = None,
        parts: tuple[Signature, ...] = (),
        sites: tuple[str | None, ...] = (),
    ) -> None:
        self.name = name
        self.fn = fn
        self.avals = avals
        self.call = call
        self.general = general
        self.trace = trace or traced(fn, structs_of(avals))
        self.collective = is_replicated() and has_collectives(self.trace.closed)
        self.rounds = rounds
        self.parts = parts
        self.sites = sites
        self.execution = Execution(native)
        self.derivatives = Derivatives(grads)
        smooth = differentiable and any(a.dtype.is_differentiable and not a.weak for a in avals)
        outputs: list[Output] = []
        for index, (shape, dtype) in enumerate(self.trace.types()):
            aval = aval_of(shape, from_numpy(dtype), device=device)
            if index < len(names):
                aval = named(aval, names[index])
            taped = INTERIOR if smooth and aval.dtype.is_differentiable else None
            outputs.append(Output(self, index, aval, taped))
        self.outputs = tuple(outputs)
        self.require(None if precondition is None else Requirement(precondition))
        self.main = len(outputs) - aux

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.avals))})"

    @property
    def compiled_fn(self) -> Callable[..., Arrays]:
        """What computes it in a compiled program on its device."""
        return self.execution.native or self.fn

    @property
    def operators(self) -> tuple[int, int]:
        """How many operators it consists of, and how many of these native bodies compute."""
        return operators_of(self.parts) if self.parts else (1, int(self.execution.native is not None))

    def with_names(self, names: Sequence[Names]) -> Signature:
        """The signature with these names of the dims of its main outputs."""
        if not any(map(any, names)):
            return self
        return self.with_types([named(output.aval, own) for output, own in zip(self.outputs, names, strict=False)])

    def with_types(self, avals: Sequence[Aval]) -> Signature:
        """The signature with these types of its main outputs, which differ in names or shardings from its own.

        It is for recording alone: its outputs say that they are this signature's, so that whatever is known of how to
        compute and to differentiate it is known once.
        """
        result = copy(self)
        outputs: list[Output] = []
        for output, aval in zip(self.outputs, [*avals, *[o.aval for o in self.outputs[len(avals) :]]], strict=True):
            outputs.append(Output(self, output.index, aval, output.taped))
            outputs[-1].alone = output.alone
        result.outputs = tuple(outputs)
        return result

    @property
    def precondition(self) -> Precondition | None:
        """What must hold of the inputs' values, or None."""
        return None if self.requirement is None else self.requirement.precondition

    def require(self, requirement: Requirement | None) -> None:
        """Set what it asks of its inputs' values."""
        self.requirement = requirement
        for output in self.outputs:
            output.alone = len(self.outputs) == 1 and requirement is None


if native is not None:
    native.bind(Output=Output, Signature=Signature, Execution=Execution, Requirement=Requirement)


def operators_of(signatures: Iterable[Signature]) -> tuple[int, int]:
    """The number of operators of some applications, and of those that native bodies compute."""
    counts = [signature.operators for signature in signatures]
    return sum([count for count, _ in counts]), sum([native for _, native in counts])
