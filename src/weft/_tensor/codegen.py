"""Generates the public functions of every operator from its row.

For each row a Python function with PyTorch's signature is written as source and compiled, as `dataclasses` does for
`__init__`: binding arguments by hand-made code costs a tenth of binding them by `inspect`.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

from weft._base.dtype import bool_
from weft._base.state import ambient
from weft._lazy.call import ONE, Exact, many
from weft._lazy.infer import call_of
from weft._tensor import arguments, fast_path, finish
from weft._tensor.arguments import refusal
from weft._tensor.autocast import casting, not_cast
from weft._tensor.convert import from_numpy_array
from weft._tensor.output import type_of_out, write_out
from weft._tensor.sharing import rebind
from weft._tensor.tensor import Tensor, operand
from weft._tensor.view import check_overlap, check_writable, is_view_of, write
from weft.errors import WeftError
from weft.ops._rows import documented
from weft.ops._table import REQUIRED, TABLE, Cast, Kind, OpDef, Param, PerDevice

# --- writing the functions ------------------------------------------------------------------------------------

_SCOPE: dict[str, Any] = {
    **arguments.SCOPE,
    "_ONE": ONE,
    "_Exact": Exact,
    "_many": many,
    "_operand": operand,
    "_operands": arguments.operands,
    "_any": arguments.operand_or_number,
    "_filling": arguments.filling,
    "_scalar": arguments.scalar_value,
    "_within": arguments.within,
    "_constant": arguments.constant,
    "_sizes": arguments.sizes,
    "_sizes_one_by_one": arguments.sizes_one_by_one,
    "_device": finish.device_of,
    "_draw": finish.draw,
    "_finish": finish.finish,
    "_finish_view": finish.finish_view,
    "_write_out": write_out,
    "_type_of_out": type_of_out,
    "_not_cast": not_cast,
}


def _lines(param: Param, op: OpDef, name: str, variadic: bool) -> list[str]:
    """Source that turns one argument into inputs (in `_inputs`) and a static entry (`s_<name>`)."""
    p, entry = param.name, f"s_{param.name}"
    names = f"{p!r}, {name!r}"  # how errors name parameter and operator
    one = f"{entry} = _ONE"
    match param.kind:
        case Kind.ARRAY | Kind.OPERAND:
            get = f"_any({p}, {names})" if param.kind is Kind.OPERAND else f"_operand({p}, name={p!r}, op={name!r})"
            if param.text == "Filling":
                get = f"_filling({p}, {names}, {op.params[0].name})"
            take = [f"_inputs.append({get})", one]
            if param.optional or param.default is None:
                return [f"{entry} = None", f"if {p} is not None:", *(f"    {line}" for line in take)]
            return take
        case Kind.SCALAR:
            take = [f"_inputs.append(_scalar({p}, {names}))", one]
            if param.default is REQUIRED and not param.optional:
                return take
            same = f"{p} is None" if param.default in (None, REQUIRED) else f"type({p}) is type(d_{p}) and {p} == d_{p}"
            kept = "None" if param.default in (None, REQUIRED) else f"d_{p}"
            return [f"if {same}:", f"    {entry} = {kept}", "else:", *(f"    {line}" for line in take)]
        case Kind.ARRAYS:
            return [f"_inputs.extend(_operands({p}, {names}, {op.params.index(param)}))", f"{entry} = _many(len({p}))"]
        case Kind.KEY:
            return ["_inputs.extend(_draw(generator))", f"{entry} = _many(2)"]
        case Kind.SHAPE if variadic:
            return [f"{entry} = _sizes_one_by_one(v_{p} if {p} is None else ({p},), {names})"]
        case Kind.SHAPE:
            return [f"{entry} = {p} if {p} is None else _sizes({p}, {names})"]
    return [f"{entry} = {_static(param, name, op.module)}"]


def _static(param: Param, name: str, module: str) -> str:
    """Source of the static entry of a parameter that takes no input."""
    base = _ANNOTATIONS.get(param.kind, param.text.removesuffix(" | None"))
    may_be_none = param.optional or param.default in (None, ())
    if base == "bool" and module == "nn.functional":
        return f"None if {param.name} is None else bool({param.name})" if may_be_none else f"bool({param.name})"
    if base in arguments.OF_ROWS:
        return arguments.converted(param.name, name, f"{base} | None" if may_be_none else base, arguments.OF_ROWS)
    constant = f"_constant({param.name}, {param.name!r}, {name!r})"
    return f"_Exact({constant})" if param.text == "int | float" else constant


_ANNOTATIONS = {Kind.DIM: "int", Kind.DIMS: "int | Sequence[int]", Kind.DTYPE: "DType"}
"""How parameters of these kinds are annotated in functions over tensors."""


def _variadic(op: OpDef) -> str:
    """The name of the shape parameter whose sizes may be given one by one, or ''."""
    positional = [p for p in op.params if not p.keyword_only and p.kind is not Kind.KEY]
    if positional and positional[-1].kind is Kind.SHAPE and positional[-1].default is REQUIRED:
        return positional[-1].name
    return ""


_NUMPY_NAMES = {"dim": "axis", "keepdim": "keepdims"}


def _numpy_names(op: OpDef) -> dict[str, str]:
    """Parameters that NumPy spells otherwise, and its spellings, which PyTorch takes as keywords, too."""
    optional = {p.name for p in op.params if p.default is not REQUIRED}
    return {name: theirs for name, theirs in _NUMPY_NAMES.items() if name in optional}


def signature_text(op: OpDef, default: Callable[[Param], str]) -> list[str]:
    """The parameters of the public function; `default` spells a default value."""
    variadic = _variadic(op)
    positional, keywords = [], []
    for param in op.params:
        if param.kind is Kind.KEY:
            continue
        text = param.name if param.default is REQUIRED else f"{param.name}={default(param)}"
        if param.name == variadic:
            positional.append(f"*v_{param.name}")
            keywords.append(f"{param.name}=None")
        else:
            (keywords if param.keyword_only else positional).append(text)
    if any(p.kind is Kind.KEY for p in op.params):
        keywords.append("generator=None")
    if op.factory:
        keywords += ["device=None", "requires_grad=False", "pin_memory=False", "layout=None"]
    keywords += [f"{theirs}=None" for theirs in _numpy_names(op).values()]
    if not op.view and not op.factory:
        keywords.append("out=None")
    if keywords and not variadic:
        positional.append("*")
    return positional + keywords


def _source(op: OpDef, name: str) -> str:
    variadic = _variadic(op)
    lines = [f"if {theirs} is not None: {ours} = {theirs}" for ours, theirs in _numpy_names(op).items()]
    if op.out_decides:
        lines.append("if dtype is None and out is not None: dtype = _type_of_out(out)")
    lines.append("_inputs = []")
    for param in op.params:
        lines += _lines(param, op, name, param.name == variadic)
    if op.limits is not None:
        scalars = ", ".join(p.name for p in op.params if p.kind is Kind.SCALAR)
        lines.append(f"_within(_op, {scalars})")
    static = "".join(f"s_{p.name}, " for p in op.params)
    if op.itself is not None:
        first = op.params[0].name
        unless = "" if op.view else " and out is None"
        params = "".join(f", s_{p.name}" for p in op.params[1:])
        lines.append(f"if _op.itself(_inputs[0].aval{params}){unless}: return {first}")
    if op.view:
        lines.append(f"return _finish_view(_op, ({static}), _inputs, {op.params[0].name})")
    else:
        made_on = ", _device(device)" if op.factory else ""
        result = f"_finish(_op, ({static}), _inputs{made_on})"
        if op.factory:
            lines += [f"_result = {result}", "if requires_grad: _result._require_grad(True)", "return _result"]
        else:
            lines.append(f"if out is None: return {result}")
            lines.append(f"with _not_cast(): _result = {result}")
            tensors = [p for p in op.params if p.name in op.separate or p.kind in (Kind.ARRAY, Kind.OPERAND)]
            read = _read([f"{'*' * (p.kind is Kind.ARRAYS)}{p.name}" for p in tensors], op.separate)
            lines.append(f"return _write_out(out, _result, _op.out_text, {read})")
    head = ", ".join(signature_text(op, lambda p: f"d_{p.name}"))
    return f"def {name}({head}):\n" + "".join(f"    {line}\n" for line in lines)


def _read(names: Iterable[str], separate: Sequence[str]) -> str:
    """Source of the tensors that are read, and of those that must share nothing with `out`: two tuples."""
    groups = ["", ""]
    for name in names:
        groups[name.removeprefix("*") in separate] += f"{name}, "
    return "({}), ({})".format(*groups)


def _compiled(op: OpDef, name: str) -> Callable[..., Any]:
    scope = {**_SCOPE, "_op": op, **{f"d_{p.name}": p.default for p in op.params if p.default is not REQUIRED}}
    exec(compile(_source(op, name), f"<weft {op.name}>", "exec"), scope)
    function = scope[name]
    function.__doc__ = op.doc
    return function


def _default_static(op: OpDef, inputs: int) -> tuple[Any, ...] | None:
    """The static part of the call with `inputs` tensors and every other parameter at its default; or None."""
    entries: list[Any] = []
    for at, param in enumerate(op.params):
        if at < inputs:
            if param.kind not in (Kind.ARRAY, Kind.OPERAND) or param.keyword_only:
                return None
            entries.append(ONE)
        elif param.default is REQUIRED or param.kind in (Kind.KEY, Kind.ARRAYS):
            return None
        else:
            entries.append(Exact(param.default) if param.text == "int | float" else param.default)
    return tuple(entries) if len(op.params) >= inputs else None


def _is_plain(op: OpDef) -> bool:
    return not (op.outputs or op.aux or op.view or op.check or op.itself)


def function_of(op: OpDef) -> Callable[..., Any]:
    """The public function of a row."""
    general = _compiled(op, op.name.rpartition("::")[2])
    if not _is_plain(op) or any(p.default is not REQUIRED or p.optional for p in op.params):
        return general
    static = _default_static(op, len(op.params))
    if static is None or [p.name for p in op.params] not in (["input"], ["input", "other"]):
        return general
    call = call_of(op, static)
    if len(op.params) == 1:
        return documented(fast_path.unary(call, general), op.name, op.doc)
    return documented(fast_path.binary(call, general, op.params[1].kind is Kind.OPERAND), op.name, op.doc)


def _picker(
    function: Callable[..., Any], names: Sequence[str]
) -> Callable[[Sequence[Any], dict[str, Any]], list[Tensor]]:
    """A function that finds the tensors among some arguments; masks in a list are read before anything is written."""
    places = {name: at for at, name in enumerate(inspect.signature(function).parameters)}

    def find(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
        tensors: list[Tensor] = []
        for name in names:
            value = args[places[name]] if places[name] < len(args) else kwargs.get(name)
            if isinstance(value, Tensor):
                tensors.append(value)
            elif isinstance(value, list | tuple):
                tensors += [x for x in value if isinstance(x, Tensor) and x.dtype is not bool_]
        return tensors

    return find


def inplace_of(
    function: Callable[..., Any], name: str, *, uniform: bool = False, separate: Sequence[str] = ()
) -> Callable[..., Any]:
    """The form that writes its result to its first argument; `uniform` if all elements get the same number.

    `separate` names the parameters whose tensors must not share any element with that argument.
    """
    apart_from = _picker(function, separate) if separate else None

    @wraps(function)
    def form(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not isinstance(input, Tensor):
            raise refusal(input, "input", name, "Tensor")
        if input._alias is not None or input._views is not None:
            check_overlap(input, [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)])
        if apart_from is not None:
            check_overlap(input, apart_from((input, *args), kwargs), wholly=True)
        try:
            if ambient().autocast.enabled:
                with not_cast():
                    result = function(input, *args, **kwargs)
            else:
                result = function(input, *args, **kwargs)
        except WeftError:
            check_writable(input, ambient().grad)  # what PyTorch would have said first
            raise
        if result is NotImplemented:
            return result
        return rebind(input, result) if is_view_of(result, input) else write(input, result._read(), uniform=uniform)

    return documented(form, name, f"In-place version of `{function.__name__}`.")


_ARRAYS = (Tensor, np.ndarray)
_OPERANDS = (*_ARRAYS, bool, int, float, complex, np.generic)


def _as_operand(other: Any) -> Any:
    return from_numpy_array(other) if isinstance(other, np.ndarray) else other


def dunders_of(op: OpDef, function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """The special methods of a row."""
    if len(op.params) == 1:
        return dict.fromkeys(op.dunder, function)

    takes_number = op.params[1].kind is Kind.OPERAND
    others = _OPERANDS if takes_number else _ARRAYS

    def forward(input: Any, other: Any) -> Any:
        if not isinstance(other, others):
            return NotImplemented
        return function(input, _as_operand(other))

    def swapped(input: Any, other: Any) -> Any:
        if not isinstance(other, others):
            return NotImplemented
        return function(_as_operand(other), input)

    static = _default_static(op, 2)
    fast = forward
    if static is not None and _is_plain(op):
        fast = fast_path.binary(call_of(op, static), forward, takes_number)
    functions: dict[str, Callable[..., Any]] = {}
    for name in op.dunder:
        reflected = name.startswith("__r") and f"__{name[3:]}" in op.dunder
        functions[name] = swapped if reflected else fast
        if op.inplace and not reflected and hasattr(operator, f"__i{name[2:]}"):
            functions[f"__i{name[2:]}"] = inplace_of(forward, f"__i{name[2:]}")
    return functions


class _Rows:
    """`op.<row>`: the function of a row, made on first use."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            function = function_of(TABLE[name])
        except KeyError:
            raise AttributeError(f"the operator table has no row {name!r}") from None
        setattr(self, name, function)
        return function


op: Any = _Rows()


# --- functions composed of rows -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Composite:
    """A function over tensors that is no row, and the forms in which it is public."""

    name: str
    function: Callable[..., Any]
    method: str
    inplace: bool
    separate: tuple[str, ...]
    is_function: bool
    module: str
    also: str


COMPOSITES: dict[tuple[str, str], Composite] = {}


def _bound(
    body: Callable[..., Any],
    name: str,
    module: str,
    out: str | None,
    separate: Sequence[str],
    cast: Cast | PerDevice | None,
) -> Callable[..., Any]:
    """The public form of a composite, which converts arguments by its annotations, as for rows."""
    scope: dict[str, Any] = {
        **arguments.SCOPE,
        "_body": body if cast is None else casting(body, cast),
        "_write_out": write_out,
        "_not_cast": not_cast,
        "_text": out,
    }
    kinds = arguments.OF_FUNCTIONAL if module == "nn.functional" else arguments.BY_ANNOTATION
    head, passed, has_star = [], [], False
    for p in inspect.signature(body).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not has_star:
            head.append("*")
        has_star = has_star or p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY)
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else f"=d_{p.name}"
        if default:
            scope[f"d_{p.name}"] = p.default
        head.append(f"{star}{p.name}{default}")
        value = star + (p.name if star else arguments.converted(p.name, name, str(p.annotation), kinds))
        passed.append(f"{p.name}={value}" if p.kind is p.KEYWORD_ONLY else value)
    body_call = f"_body({', '.join(passed)})"
    call = f"return {body_call}"
    if out is not None:
        head += ["out=None"] if has_star else ["*", "out=None"]
        read = _read(inspect.signature(body).parameters, separate)
        call = f"if out is None: {call}\n        with _not_cast(): result = {body_call}\n        "
        call += f"return _write_out(out, result, _text, {read})"
    source = (
        f"def bound({', '.join(head)}):\n    try:\n        {call}\n"
        f"    except _LEAKS as error:\n        raise _leaked({name!r}, error)\n"
    )
    exec(compile(source, f"<weft {name}>", "exec"), scope)
    bound: Any = wraps(body)(scope["bound"])
    if out is not None:
        bound.__signature__ = _with_out(inspect.signature(body))
    return bound


def _with_out(signature: inspect.Signature) -> inspect.Signature:
    """A signature with `out`, before `**kwargs`."""
    out = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
    return signature.replace(parameters=[*signature.parameters.values(), out])


def composite(
    name: str | None = None,
    *,
    doc: str | None = None,
    method: bool | str | None = None,
    inplace: bool = False,
    separate: Sequence[str] = (),
    function: bool = True,
    module: str = "",
    also: str = "",
    over: bool = False,
    out: str | None = None,
    cast: Cast | PerDevice | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the decorated function public: as function, as method (if its first parameter is `input`), in place.

    Tensors of the parameters in `separate` must share nothing with what is written to, in place or by `out=`.
    With `out`, it takes tensors to write its results to; what it is says that these must have the results' types, or
    is "" where they may have any that results can be cast to. `cast` is the autocast class of one that is an
    operator of its own: its tensors are cast, and what it calls casts nothing. Others leave it to the rows they call.
    A function that was made inside of another one is named and described by `name` and `doc`. `over` says that there
    is a row of this name, whose public forms this hides.
    """

    def make(body: Callable[..., Any]) -> Callable[..., Any]:
        public = name or body.__name__.rstrip("_")
        if name and "<locals>" in body.__qualname__:
            documented(body, name, doc or body.__doc__ or "")
        code = body.__code__
        first = code.co_varnames[0] if code.co_argcount else ""
        is_method = method if method is not None else first == "input" and not module
        key = (module, public)
        if key in COMPOSITES:
            raise ValueError(f"composite {public!r} is defined twice; give one of them another name")
        if over is not (public in TABLE):
            raise ValueError(
                f"composite {public!r} says over={over}, but there is {'no' if over else 'a'} row of this name"
            )
        spelled = public if is_method is True else is_method or ""
        bound = _bound(body, spelled or public, module, out, separate, cast)
        COMPOSITES[key] = Composite(public, bound, spelled, inplace, tuple(separate), function, module, also)
        return body

    return make
