"""From calls to signatures: a signature is made once per combination of operator, arguments and types, and cached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial

import jax

from weft._base import state
from weft._base.device import CPU, META, device
from weft._base.dtype import DType, bool_, complex128, float64, int64
from weft._base.interrupts import uninterrupted
from weft._base.site import warn_user
from weft._base.timeline import Phase, spanned
from weft._base.types import AnyArray, Arg, Args
from weft._lazy.aval import Aval, in_memory, marked, named, plain_type
from weft._lazy.body import Unflattener, body_of, entries_of, host_body, native_body, operands_of
from weft._lazy.call import BoundOp, kinds_of
from weft._lazy.explain import inferring
from weft._lazy.general import General, family_of, filled, forget_families, is_valid, static_with
from weft._lazy.names import output_names
from weft._lazy.native import native
from weft._lazy.precondition import ErrorTemplate, Precondition
from weft._lazy.refusal import Refused, refusal, refusing, require_dim, require_int64
from weft._lazy.signature import Requirement, Signature, structs_of
from weft._lazy.trace import SymbolicSize, traced
from weft.errors import (
    ArgumentError,
    DeviceError,
    ShapeError,
    UnsupportedDTypeError,
    WeftError,
)
from weft.ops._dims import given_names, pointwise
from weft.ops._findings import Failures, Finding, finding
from weft.ops._kinds import TENSOR_KINDS, Kind, Many
from weft.ops._memory import require_addressable
from weft.ops._replicas import result_types
from weft.ops._table import TABLE, Arithmetic, OpDef
from weft.ops._type_names import scalar_name


class Call(BoundOp):
    """An operator with its static arguments, and its signatures so far. One object per combination.

    Signatures that warn, and those without names of rows that give names, are in `uncached`, where the fast path finds
    none, so every such call goes through `signature_of`.

    derives    whether it has a derivative
    by_layout  whether it is a view only for some layouts (`View.by_layout`)
    spreads    whether it shows an element in several places (`View.spreads`)
    write      of a view, the call that writes through it, once somebody has asked
    """

    __slots__ = ("by_layout", "derives", "signatures", "spreads", "uncached", "write")

    def __init__(self, op: OpDef, static: Args, device: device | None) -> None:
        super().__init__(op, static, device)
        self.signatures: dict[tuple[Aval, ...], Signature] = {}
        self.uncached: dict[tuple[Aval, ...], Signature] = {}
        self.derives = op.derivative.exists
        self.by_layout = op.view is not None and op.view.by_layout
        self.spreads = op.view is not None and op.view.spreads
        self.write: Call | None = None


# no cell: a cache, keyed by all that its entries depend on; another default type clears it
_calls: dict[object, Call] = {}
_MOST_CALLS = 65_536

if native is not None:
    native.bind(Call=Call, calls=_calls)


def call_of(op: OpDef, static: Args, device: device | None = None) -> Call:
    """The one `Call` with this operator, static arguments and (for factories) device."""
    key = (op, static, device)
    call = _calls.get(key)
    if call is None:
        if len(_calls) >= _MOST_CALLS:
            _calls.clear()
        call = _calls.setdefault(key, Call(op, static, device))
    return call


def _forget_signatures() -> None:
    forget_families()
    for call in _calls.values():
        call.signatures.clear()
        call.uncached.clear()


state.on_dtype_change(_forget_signatures)


def signature_of(call: Call, avals: tuple[Aval, ...]) -> Signature:
    """The signature of `call` on inputs of these types; raises errors in PyTorch's words."""
    signature = call.signatures.get(avals)
    if signature is not None:
        return signature
    if any(aval.inference or aval.external for aval in avals):
        return signature_of(call, tuple([marked(in_memory(aval, False), False) for aval in avals]))
    if call.op.types.result is not None:
        return _retyped_signature(call, avals)
    if call.op.dims is given_names or any(aval.names for aval in avals):
        return _named_signature(call, avals)
    return _unnamed_signature(call, avals)


def _unnamed_signature(call: Call, avals: tuple[Aval, ...]) -> Signature:
    """The signature on inputs whose dims have no names."""
    plain = call_of(call.op, _normalised(call, avals), call.device)
    warning = _checked_inputs(call, avals) if call.op.check.inputs else ""
    if warning:
        warn_user(warning)
    is_uncached = bool(warning) or call.op.dims is given_names
    table = plain.uncached if is_uncached else plain.signatures
    signature = table.get(avals)
    if signature is None:
        signature = table.setdefault(avals, _infer(plain, avals))  # other threads may have been faster
    if not is_uncached:
        call.signatures[avals] = signature
    return signature


def _named_signature(call: Call, avals: tuple[Aval, ...]) -> Signature:
    """The signature where dims have names."""
    unnamed = tuple([named(aval, None) for aval in avals])
    # where inputs broadcast, names are compared before sizes; other rules take it that sizes fit
    fitting = None if call.op.dims is pointwise else _unnamed_signature(call, unnamed)
    static = dict(zip([p.name for p in call.op.params], _normalised(call, avals), strict=True))
    operands = operands_of(call, avals)
    names = output_names(
        call.op, [a.shape for a in operands], static, [a.names or (None,) * len(a.shape) for a in operands]
    )
    result = (fitting or _unnamed_signature(call, unnamed)).with_names(names)
    if call.op.dims is given_names or unnamed in call.signatures:  # else each call warns
        call.signatures[avals] = result
    return result


def _retyped_signature(call: Call, avals: tuple[Aval, ...]) -> Signature:
    """The signature of a row that changes the owner of values; it computes with their arrays alone."""
    assert call.op.types.result is not None, "it has a rule for the type of its result"
    plain = _infer(call, tuple([plain_type(aval) for aval in avals]))
    rest = call.static[len(avals) :]
    return call.signatures.setdefault(avals, plain.with_types([call.op.types.result(avals, *rest)]))


def _infer(call: BoundOp, avals: tuple[Aval, ...]) -> Signature:
    """The signature of a call, traced now."""
    with uninterrupted:  # what a signal's handler raises is not for those who explain why inputs do not fit
        return _inferred(call, avals)


@inferring
@spanned(Phase.INFERENCE, "signature")
def _inferred(call: BoundOp, avals: tuple[Aval, ...]) -> Signature:
    op = call.op
    device = call.device or common_device(op.name, avals)
    _require_types(call, avals)
    misfit = _misfit(call, avals)
    structs = structs_of(avals)
    family, numbers = family_of(call, avals)
    is_ours = op is TABLE.get(op.name)  # what users write is traced for the sizes that it is called with
    general = family.find(numbers, partial(_generalised, call, avals)) if is_ours and misfit is None else None
    trace = general[0].trace.with_sizes(general[1]) if general is not None else None
    if trace is not None and not is_valid(trace.types()):
        general = trace = None
    try:
        types = None if trace is None else [dtype for _, dtype in trace.types()]
        body = body_of(call, avals, structs, types)
        if trace is None:
            trace = traced(refusing(op, body.fn), structs)
        signature = Signature(
            op.name,
            body.fn,
            avals,
            device=device,
            aux=op.derivative.aux,
            differentiable=op.derivative.exists,
            call=call,
            grads=body.grads,
            rounds=op.types.arithmetic is not Arithmetic.NONE,
            trace=trace,
            general=general,
        )
        if op.check.elements is not None and device is not META:
            precondition = _precondition(op, body.unflatten, structs, None if general is None else general[0])
            signature.require(None if precondition is None else Requirement(precondition))
    except WeftError as error:
        vars(error).pop("__notes__", None)  # jax's advice on frames of its own
        raise
    except (NameError, AttributeError):  # a mistake in a body, which no inputs would mend
        raise
    except Exception as error:
        _refuse_float8(call, [a.dtype for a in avals] + [entry for entry in call.static if isinstance(entry, DType)])
        reason = error.__cause__ if isinstance(error, Refused) else None
        if misfit is not None:
            raise misfit from reason or error
        if reason is not None:
            raise refusal(op, avals, reason) from reason
        raise
    if misfit is not None:
        raise misfit
    execution, derivatives = signature.execution, signature.derivatives
    execution.host, execution.overwrites = host_body(call), op.host is not None and op.view is None
    if op.native and (native := native_body(call, avals, structs, device.type)) is not None:
        execution.native, derivatives.native = native
    if op.types.arithmetic is not Arithmetic.NONE and (operands_of(call, avals) or Kind.KEY in kinds_of(call)):
        _refuse_float8(call, [output.aval.dtype for output in signature.outputs])
    if general is None:
        family.add(numbers, signature.trace.types())
    for output in signature.outputs:
        if len(output.aval.shape) > 64:
            raise ShapeError("only tensors with up to 64 dims are supported")
        require_addressable(output.aval.shape, output.aval.dtype.itemsize)
    return signature


def _generalised(call: BoundOp, avals: tuple[Aval, ...], sizes: Iterator[SymbolicSize]) -> General:
    """The general trace of a call: with other sizes, which may be letters."""
    op = call.op
    structs = filled(avals, sizes)
    body = body_of(BoundOp(op, static_with(call, sizes), call.device), avals, structs)
    trace = traced(body.fn, structs)
    precondition = _precondition(op, body.unflatten, structs) if op.check.elements is not None else None
    main = len(trace.results) - op.derivative.aux
    return General(body.fn, body.grads, main, structs, trace, precondition)


def _precondition(
    op: OpDef, unflatten: Unflattener, structs: Sequence[jax.ShapeDtypeStruct], general: General | None = None
) -> Precondition | None:
    """The row's check as a precondition on inputs of these types, or None; `general` has it for all sizes."""
    check = op.check.elements
    assert check is not None, "only called where there is one"

    def findings(*arrays: AnyArray) -> Finding | None:
        args, kwargs = unflatten(arrays)
        result = check(*args, **kwargs)
        return None if result is None else finding(result)

    def codes(*arrays: AnyArray) -> list[AnyArray]:
        result = findings(*arrays)
        assert result is not None, "that depends on types alone"
        return [result.code()]

    abstract = cache(lambda: result_types(findings, *structs))
    for_all_sizes = general.precondition if general is not None else None
    if (for_all_sizes if general is not None else abstract()) is None:
        return None
    fails = for_all_sizes.waits if for_all_sizes is not None else isinstance(abstract(), Failures)
    template = op.check.text if fails else f"{op.name}(): {op.check.text}"
    return Precondition(codes, [ErrorTemplate(op.check.error, template, abstract)], on_host=not fails, waits=fails)


def _require_types(call: BoundOp, avals: tuple[Aval, ...]) -> None:
    """Raise for numbers in place of tensors."""
    op, kinds = call.op, kinds_of(call)
    operands = [a for a, kind in zip(avals, kinds, strict=True) if kind in TENSOR_KINDS]
    if operands and not op.types.of_numbers and all(a.weak for a in operands):
        text = ", ".join(_PYTHON_NAMES.get(a.dtype, a.dtype.name) for a in operands)
        raise ArgumentError(
            f"{op.name}() received an invalid combination of arguments - got ({text}), but one of them must be Tensor"
        )


def _checked_inputs(call: BoundOp, avals: tuple[Aval, ...]) -> str:
    """The text of the row's warning for inputs of these types; raises if it refuses them."""
    check = call.op.check.inputs
    assert check is not None, "only called where there is one"
    names = [p.name for p, entry in zip(call.op.params, call.static, strict=True) if isinstance(entry, Many)]
    return check(dict(zip(names, avals, strict=True)))


def _refuse_float8(call: BoundOp, dtypes: Iterable[DType]) -> None:
    """Raise if one of these types is an 8-bit float, for a row that computes its results."""
    for dtype in dtypes:
        if dtype.is_float8:
            raise UnsupportedDTypeError(
                f"\"{call.op.name}\" not implemented for '{scalar_name(dtype)}': 8-bit floats are stored, moved, "
                "compared and converted; compute in another type"
            )


_PYTHON_NAMES = {bool_: "bool", int64: "int", float64: "float", complex128: "complex"}


def _misfit(call: BoundOp, avals: tuple[Aval, ...]) -> WeftError | None:
    """The dim rule's error for the shapes, or None. An error of the body is more specific, and comes first."""
    if call.op.dims is None:
        return None
    try:
        call.op.dims(_shapes(call, avals), {p.name: s for p, s in zip(call.op.params, call.static, strict=True)})
    except WeftError as error:
        return error
    return None


def _shapes(call: BoundOp, avals: tuple[Aval, ...]) -> list[tuple[int, ...]]:
    """The shapes of the inputs that are tensors."""
    return [a.shape for a in operands_of(call, avals)]


def common_device(name: str, avals: tuple[Aval, ...]) -> device:
    """The device of an operator: that of its tensors; `RuntimeError` if they are on several."""
    devices = {a.device: None for a in avals if not a.weak}
    if len(devices) > 1:
        names = " and ".join(map(str, devices))
        raise DeviceError(
            f"{name}(): Expected all tensors to be on the same device, but found at least two devices, {names}! "
            "Move them with .to(device) first"
        )
    return next(iter(devices), CPU)


def _normalised(call: BoundOp, avals: tuple[Aval, ...]) -> Args:
    """The static part with non-negative dims, checked against the first tensor, or the longest shape of a list."""
    ranks = [(len(a.shape), k) for a, k in zip(avals, kinds_of(call), strict=True) if k in TENSOR_KINDS]
    ndim = ranks[0][0] if ranks else 0
    if not ranks and any(param.kind is Kind.ARRAYS for param in call.op.params):
        return call.static  # the body says what an empty list lacks
    if ranks and ranks[0][1] is Kind.ARRAYS:
        ndim = max(rank for rank, kind in ranks if kind is Kind.ARRAYS)
    entries: list[Arg] = []
    for param, entry in zip(call.op.params, call.static, strict=True):
        require_int64(call.op.name, param, entry)
        if param.kind is Kind.DIM and entry is not None:
            entry = require_dim(entry, ndim, f"{call.op.name}(): argument {param.name!r}")
        elif param.kind is Kind.DIMS and entry is not None:
            dims = entries_of(entry)
            entry = tuple(require_dim(d, ndim, f"{call.op.name}(): argument {param.name!r}") for d in dims)
            if len(set(entry)) != len(entry):
                twice = next(d for d in entry if entry.count(d) > 1)
                raise ShapeError(f"dim {twice} appears multiple times in the list of dims")
        entries.append(entry)
    return tuple(entries)
