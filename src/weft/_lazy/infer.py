"""Signatures: an operator applied to inputs of given types. Made once per combination, then looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from weft._base import state
from weft._base.device import CPU, device
from weft._base.dtype import DType, from_numpy, result_type
from weft._base.site import warn_user
from weft._lazy.value import INTERIOR, Aval, Tape, aval_of, marked
from weft.errors import ArgumentError, DeferredIndexError, DeviceError, DimError, GradientError, ShapeError, WeftError
from weft.ops._index import Misses, missed
from weft.ops._table import TENSOR_KINDS, Kind, OpDef, Promote

Arrays = tuple[jax.Array, ...]


class Many:
    """In a call's static part: this parameter takes the next `count` inputs."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count

    def __repr__(self) -> str:
        return f"<{self.count} inputs>"


class Exact:
    """In a call's static part: a Python number whose type matters, since `2 == 2.0` and their hashes agree."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))

    def __repr__(self) -> str:
        return repr(self.value)


_many: dict[int, Many] = {}


def many(count: int) -> Many:
    """The one marker for `count` inputs."""
    return _many.setdefault(count, Many(count))


ONE = many(1)
"""In a call's static part: this parameter takes the next input."""


class Output:
    """One output of a signature. Values point here; its identity is their part of a program's key.

    `alone` tells that the signature has no other; `taped` is the tape of values through which gradients flow.
    """

    __slots__ = ("alone", "aval", "index", "signature", "taped")

    def __init__(self, signature: Signature, index: int, aval: Aval, taped: Tape | None) -> None:
        self.signature = signature
        self.index = index
        self.aval = aval
        self.taped = taped
        self.alone = True


class Signature:
    """An application by types: what it computes, and the types that come out.

    fn        arrays -> tuple of arrays, one per output
    main      how many outputs are the operator's; the rest only serve its derivative
    check     arrays -> a number, 0 unless a value is bad, which it then tells (`complaint`); or None
    grads     (arrays, outputs, cotangents of the main outputs) -> one gradient or None per input, where the
              row has a hand-written derivative; or None
    derived   derivatives by which inputs and outputs take part (`_autograd/derive.py`)
    """

    __slots__ = (
        "avals",
        "call",
        "check",
        "check_error",
        "check_text",
        "check_where",
        "derived",
        "fn",
        "grads",
        "main",
        "name",
        "outputs",
    )

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
        check: Callable[..., jax.Array] | None = None,
        check_text: str = "index out of range",
        check_error: type[WeftError] = DeferredIndexError,
        grads: Callable[..., Sequence[jax.Array | None]] | None = None,
    ) -> None:
        self.name = name
        self.fn = fn
        self.avals = avals
        self.call = call
        self.check = check
        self.check_text = check_text
        self.check_error = check_error
        self.check_where = ""
        self.grads = grads
        self.derived: dict[Any, Any] = {}
        structs = jax.eval_shape(fn, *(jax.ShapeDtypeStruct(a.shape, a.dtype.numpy) for a in avals))
        smooth = differentiable and any(a.dtype.is_differentiable and not a.weak for a in avals)
        outputs = []
        for index, struct in enumerate(structs):
            aval = aval_of(tuple(struct.shape), from_numpy(struct.dtype), device=device)
            taped = INTERIOR if smooth and aval.dtype.is_differentiable else None
            outputs.append(Output(self, index, aval, taped))
        self.outputs = tuple(outputs)
        for output in outputs:
            output.alone = len(outputs) == 1
        self.main = len(outputs) - aux

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(repr, self.avals))})"

    def complaint(self, code: int) -> str:
        """What the check says that gave this number."""
        return self.check_text.format(missed(code), self.check_where)


class Call:
    """An operator with its static arguments: one entry per parameter, in order.

    An entry is a `Many` for parameters that take inputs, else the value itself. One object per combination.
    Signatures that warn are kept apart: a common call finds none, and so comes by `signature_of` every time.
    """

    __slots__ = ("device", "op", "signatures", "static", "warned")

    def __init__(self, op: OpDef, static: tuple[Any, ...], device: device | None) -> None:
        self.op = op
        self.static = static
        self.device = device
        self.signatures: dict[tuple[Aval, ...], Signature] = {}
        self.warned: dict[tuple[Aval, ...], Signature] = {}

    def __repr__(self) -> str:
        shown = (f"{p.name}={s!r}" for p, s in zip(self.op.params, self.static, strict=True) if not isinstance(s, Many))
        return f"{self.op.name}({', '.join(shown)})"


_calls: dict[Any, Call] = {}
_MOST_CALLS = 65_536


def call_of(op: OpDef, static: tuple[Any, ...], device: device | None = None) -> Call:
    """The one `Call` with this operator, static arguments and (for factories) device."""
    key = (op, static, device)
    found = _calls.get(key)
    if found is None:
        if len(_calls) >= _MOST_CALLS:
            _calls.clear()
        found = _calls.setdefault(key, Call(op, static, device))
    return found


def _forget_signatures() -> None:
    for call in _calls.values():
        call.signatures.clear()
        call.warned.clear()


state.on_dtype_change(_forget_signatures)


def signature_of(call: Call, avals: tuple[Aval, ...]) -> Signature:
    """The signature of `call` on inputs of these types; raises what does not fit, in PyTorch's words."""
    found = call.signatures.get(avals)
    if found is None and any(aval.inference for aval in avals):
        return signature_of(call, tuple(marked(aval, False) for aval in avals))
    if found is None:
        plain = call_of(call.op, _normalised(call, avals), call.device)
        warning = call.op.warning(_shapes(call, avals)) if call.op.warning else ""
        if warning:
            warn_user(warning)
        known = plain.warned if warning else plain.signatures
        found = known.get(avals)
        if found is None:
            found = known.setdefault(avals, _infer(plain, avals))  # other threads may have been faster
        if not warning:
            call.signatures[avals] = found
    return found


def _infer(call: Call, avals: tuple[Aval, ...]) -> Signature:
    op = call.op
    where = call.device or common_device(op.name, avals)
    casts = _casts(call, avals)
    misfit = _misfit(call, avals)

    def place(arrays: Sequence[jax.Array]) -> tuple[list[Any], dict[str, Any]]:
        cast = [a if c is None else _cast(a, c) for a, c in zip(arrays, casts, strict=True)]
        return _arguments(call, cast)

    def fn(*arrays: jax.Array) -> Arrays:
        args, kwargs = place(arrays)
        out = op.impl(*args, **kwargs)
        return tuple(out) if isinstance(out, (tuple, list)) else (out,)

    def check(*arrays: jax.Array) -> jax.Array:
        found = bad(*arrays)
        return found.code() if isinstance(found, Misses) else jnp.any(found).astype(jnp.int64)

    def bad(*arrays: jax.Array) -> Any:
        assert op.check is not None, "only called where there is one"
        args, kwargs = place(arrays)
        return op.check(*args, **kwargs)

    try:
        found = Signature(
            op.name, fn, avals, device=where, aux=op.aux, differentiable=op.differentiable, call=call,
            check_text=op.check_text, check_error=op.check_error, grads=_hand_written(call, place) if op.vjp else None,
        )  # fmt: skip
        structs = [jax.ShapeDtypeStruct(a.shape, a.dtype.numpy) for a in avals]
        checked = None if op.check is None else jax.eval_shape(bad, *structs)
        if checked is not None:
            found.check = check
            found.check_where = checked.where if isinstance(checked, Misses) else ""
    except WeftError as error:
        vars(error).pop("__notes__", None)  # jax's advice on frames of its own
        raise
    except (TypeError, ValueError, NotImplementedError) as error:
        if misfit is not None:
            raise misfit from None
        kind = ArgumentError if isinstance(error, TypeError) else ShapeError
        given = ", ".join(map(repr, avals))
        reason = str(error).split("\n", 1)[0]
        raise kind(f"{op.name}(): cannot be applied to ({given}): {reason}") from error
    if misfit is not None:
        raise misfit
    return found


def _misfit(call: Call, avals: tuple[Aval, ...]) -> WeftError | None:
    """What the dim rule has against the shapes. What the body itself finds says more, and comes first."""
    if call.op.dims is None:
        return None
    try:
        call.op.dims(_shapes(call, avals), {p.name: s for p, s in zip(call.op.params, call.static, strict=True)})
    except WeftError as error:
        return error
    return None


def _shapes(call: Call, avals: tuple[Aval, ...]) -> list[tuple[int, ...]]:
    """The shapes of the inputs that are tensors."""
    return [a.shape for a, kind in zip(avals, kinds_of(call), strict=True) if kind in TENSOR_KINDS]


def _hand_written(
    call: Call, place: Callable[..., tuple[list[Any], dict[str, Any]]]
) -> Callable[..., list[jax.Array | None]]:
    """The row's derivative, over flat inputs."""
    op = call.op

    def grads(arrays: Arrays, outputs: Arrays, cotangents: Arrays) -> list[jax.Array | None]:
        assert op.vjp is not None
        args, kwargs = place(arrays)
        g = cotangents[0] if len(cotangents) == 1 else cotangents
        out = outputs[0] if len(outputs) == 1 else outputs
        found = op.vjp(g, out, *args, **kwargs)
        pending = list(found) if isinstance(found, (tuple, list)) else [found]
        flat: list[jax.Array | None] = []
        for param, entry in zip(op.params, call.static, strict=True):
            count = entry.count if isinstance(entry, Many) else 0
            if param.kind not in TENSOR_KINDS:
                flat.extend([None] * count)
                continue
            grad = pending.pop(0)
            if param.kind is Kind.ARRAYS:
                flat.extend(grad)
            elif count:
                flat.append(grad)
        return [None if g is None else _fitted(op.name, g, a) for g, a in zip(flat, arrays, strict=True)]

    return grads


def _fitted(op: str, grad: jax.Array, array: jax.Array) -> jax.Array:
    """A gradient in the type of its input; `GradientError` where the shapes differ."""
    if grad.shape != array.shape:
        raise GradientError(
            f"{op}: its backward returned a gradient of shape {list(grad.shape)} for an argument of shape "
            f"{list(array.shape)}"
        )
    return _cast(grad, array.dtype)


def kinds_of(call: Call) -> list[Kind]:
    """The kind of each flat input."""
    kinds: list[Kind] = []
    for param, entry in zip(call.op.params, call.static, strict=True):
        if isinstance(entry, Many):
            kinds.extend([param.kind] * entry.count)
    return kinds


def _arguments(call: Call, arrays: Sequence[jax.Array]) -> tuple[list[Any], dict[str, Any]]:
    """Flat inputs and static entries, as the body takes them."""
    rest = iter(arrays)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for param, entry in zip(call.op.params, call.static, strict=True):
        if not isinstance(entry, Many):
            value = entry.value if isinstance(entry, Exact) else entry
        elif param.kind is Kind.ARRAYS:
            value = tuple(next(rest) for _ in range(entry.count))
        elif param.kind is Kind.KEY:
            seed, offset = next(rest), next(rest)
            value = jax.random.fold_in(jax.random.key(seed), offset)
        else:
            value = next(rest)
        if param.keyword_only:
            kwargs[param.name] = value
        else:
            args.append(value)
    return args, kwargs


def _cast(array: jax.Array, dtype: Any) -> jax.Array:
    if array.dtype == dtype:
        return array
    if jnp.issubdtype(array.dtype, jnp.complexfloating) and not jnp.issubdtype(dtype, jnp.complexfloating):
        array = array.real
    return array.astype(dtype)


def _casts(call: Call, avals: tuple[Aval, ...]) -> list[Any]:
    """The dtype that each input is cast to before the body, or None."""
    target: DType | None = None
    kinds = kinds_of(call)
    taking_part = [a for a, k in zip(avals, kinds, strict=True) if k in TENSOR_KINDS]
    if call.op.promote is not Promote.NONE and taking_part:
        default = state.default_dtype()
        target = result_type(tuple((a.dtype, len(a.shape), a.weak) for a in taking_part), default)
        if call.op.promote is Promote.FLOAT and not target.is_differentiable:
            target = default
    if target is None:
        return [None] * len(avals)
    return [target.numpy if k in TENSOR_KINDS else None for k in kinds]


def common_device(name: str, avals: tuple[Aval, ...]) -> device:
    """Where an operator runs: where its tensors are; `RuntimeError` when they are not in one place."""
    devices = {a.device: None for a in avals if not a.weak}
    if len(devices) > 1:
        names = " and ".join(map(str, devices))
        raise DeviceError(
            f"{name}(): Expected all tensors to be on the same device, but found at least two devices, {names}! "
            "Move them with .to(device) first"
        )
    return next(iter(devices), CPU)


def _normalised(call: Call, avals: tuple[Aval, ...]) -> tuple[Any, ...]:
    """The static part with dims made non-negative, and checked against the first tensor or the widest of a list."""
    ranks = [(len(a.shape), k) for a, k in zip(avals, kinds_of(call), strict=True) if k in TENSOR_KINDS]
    ndim = ranks[0][0] if ranks else 0
    if ranks and ranks[0][1] is Kind.ARRAYS:
        ndim = max(rank for rank, kind in ranks if kind is Kind.ARRAYS)
    entries = []
    for param, entry in zip(call.op.params, call.static, strict=True):
        if param.kind is Kind.DIM and entry is not None:
            entry = wrap_dim(entry, ndim, f"{call.op.name}(): argument {param.name!r}")
        elif param.kind is Kind.DIMS and entry is not None:
            listed = entry if isinstance(entry, tuple) else (entry,)
            entry = tuple(wrap_dim(d, ndim, f"{call.op.name}(): argument {param.name!r}") for d in listed)
            if len(set(entry)) != len(entry):
                twice = next(d for d in entry if entry.count(d) > 1)
                raise ShapeError(f"dim {twice} appears multiple times in the list of dims")
        entries.append(entry)
    return tuple(entries)


def wrap_dim(dim: Any, ndim: int, argument: str = "a dim") -> int:
    """A dim counted from the front; `IndexError` in PyTorch's words when there is none such."""
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise ArgumentError(f"{argument} must be int, not {type(dim).__name__}: {dim!r}")
    dim = dim.__index__()
    span = max(ndim, 1)
    if not -span <= dim < span:
        raise DimError(f"Dimension out of range (expected to be in range of [{-span}, {span - 1}], but got {dim})")
    return dim % span
