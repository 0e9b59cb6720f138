"""Generates the public function of each operator from its row.

For each row, source of a Python function with PyTorch's signature is generated and compiled, as `dataclasses` does for
`__init__`. Generated code binds arguments ten times faster than `inspect` would.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence

from weft._base.device import default_device, device
from weft._base.generated import execute
from weft._base.state import ambient
from weft._base.types import AnyCallable, Arg, Args
from weft._dispatch import apply
from weft._lazy.autocast import cast_inputs
from weft._lazy.call import ONE, Exact, many, part_of_draw
from weft._lazy.infer import call_of
from weft._lazy.native import native
from weft._lazy.value import Value
from weft._tensor import arguments, fast_path
from weft._tensor.alias import is_copied
from weft._tensor.autocast import not_cast
from weft._tensor.convert import existing
from weft._tensor.generator import Generator, PartOfDraws, default_generator, own_generator
from weft._tensor.named_results import tuple_of
from weft._tensor.numpy_names import numpy_names_of, one_of, with_axis
from weft._tensor.output import type_of_out, write_out
from weft._tensor.pieces import shown_in_memory
from weft._tensor.recorders import recorder_of
from weft._tensor.scalar import number
from weft._tensor.tensor import Results, Tensor, operand, wrap
from weft._tensor.view import make_view
from weft.ops._autocast import Cast
from weft.ops._kinds import REQUIRED, Kind, Many, Param
from weft.ops._rows import documented
from weft.ops._table import TABLE, OpDef

# --- turning arguments into inputs and static entries ---------------------------------------------------------


def _device(x: Arg) -> device | None:
    target = default_device() if x is None else x
    return None if target is None else existing(target)


def _draw(generator: Generator | PartOfDraws | None, inputs: list[Value]) -> Many:
    """Append the inputs of a random key; returns its static entry."""
    if isinstance(generator, PartOfDraws):
        _draw(generator.generator, inputs)
        inputs.append(number(generator.first))
        return part_of_draw(generator.sizes)
    source = default_generator if generator is None else own_generator(generator)
    capture = ambient().capture
    inputs += map(number, source.draw()) if capture is None else capture.draws(source)
    return many(2)


def _finish(op: OpDef, static: tuple[object, ...], values: list[Value], device: Arg = None) -> Results:
    call = call_of(op, static, device)
    results = apply(call, tuple(values))
    if len(results) == 1 and not op.outputs:
        return wrap(results[0])
    return tuple_of(op)(*map(wrap, results))


finish = _finish
"""`_finish`, or its twin in the extension."""
if native is not None:
    native.bind(finish=_finish, tuple_of=tuple_of)
    finish = native.finish


def _finish_view(op: OpDef, static: tuple[object, ...], values: list[Value], source: Tensor) -> Tensor:
    call = call_of(op, static)
    if op.types.autocast is not _NOT_CAST and (state := ambient()).autocast.enabled:
        inputs = cast_inputs(call, tuple(values), state)
        if inputs[0] is not values[0]:  # a view of the cast input, which nobody else sees
            return wrap(apply(call, inputs)[0])
    others = tuple(values[1:])
    result = wrap(shown_in_memory(call, values[0], others) or apply(call, tuple(values))[0])
    return result if is_copied(source, call, others) else make_view(result, source, call, others)


finish_view = _finish_view
"""`_finish_view`, or its twin in the extension."""
if native is not None:
    native.bind(finish_view=_finish_view)
    finish_view = native.finish_view


_NOT_CAST = Cast.NONE  # looking up members of enumerations is slow


# --- writing the functions ------------------------------------------------------------------------------------

_SCOPE: dict[str, object] = {
    **arguments.SCOPE,
    "_ONE": ONE,
    "_required": REQUIRED,
    "_one_of": one_of,
    "_Exact": Exact,
    "_many": many,
    "_operand": operand,
    "_operands": arguments.operands,
    "_any": arguments.operand_or_number,
    "_filling": arguments.filling,
    "_scalar": arguments.scalar_value,
    "_real_value": arguments.real_value,
    "_whole_value": arguments.whole_value,
    "_within": arguments.within,
    "_older": arguments.older,
    "_constant": arguments.constant,
    "_sizes": arguments.sizes,
    "_sizes_one_by_one": arguments.sizes_one_by_one,
    "_dim_list": arguments.dim_list,
    "_dims_one_by_one": arguments.dims_one_by_one,
    "_device": _device,
    "_draw": _draw,
    "_finish": finish,
    "_finish_view": finish_view,
    "_call_of": call_of,
    "_write_out": write_out,
    "_type_of_out": type_of_out,
    "_not_cast": not_cast,
}


def _lines(param: Param, op: OpDef, name: str, variadic: bool) -> list[str]:
    """Source that converts one argument to inputs (in `_inputs`) and a static entry (`s_<name>`)."""
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
            take = [f"_inputs.append({_NUMBERS[param.text.removesuffix(' | None')]}({p}, {names}))", one]
            if param.default is REQUIRED and not param.optional:
                return take
            same = f"{p} is None" if param.default in (None, REQUIRED) else f"type({p}) is type(d_{p}) and {p} == d_{p}"
            kept = "None" if param.default in (None, REQUIRED) else f"d_{p}"
            return [f"if {same}:", f"    {entry} = {kept}", "else:", *(f"    {line}" for line in take)]
        case Kind.ARRAYS:
            return [f"_inputs.extend(_operands({p}, {names}, {op.params.index(param)}))", f"{entry} = _many(len({p}))"]
        case Kind.KEY:
            return [f"{entry} = _draw(generator, _inputs)"]
        case Kind.SHAPE:
            convert = ("_sizes", "_sizes_one_by_one")
            if param.text == "DimList":
                convert, names = ("_dim_list", "_dims_one_by_one"), f"{names}, {op.params[0].name}"
            if variadic:
                return [f"{entry} = {convert[1]}(v_{p} if {p} is None else ({p},), {names})"]
            return [f"{entry} = {p} if {p} is None else {convert[0]}({p}, {names})"]
        case _:
            return [f"{entry} = {_static(param, name, op.public.module, op.params[0].name)}"]


_NUMBERS = {"Scalar": "_scalar", "Real": "_real_value", "Whole": "_whole_value"}
"""How generated source calls what converts numbers that are inputs, by annotation."""


def _static(param: Param, name: str, module: str, first: str) -> str:
    """Source of the static entry of a parameter that is not an input."""
    may_be_none = param.optional or param.default in (None, ())
    if param.text.startswith("OwnDim"):
        return arguments.converted(param.name, name, param.text, first=first)
    if param.kind in _BY_NAME and param.text != "IntDim":
        return arguments.converted(param.name, name, _BY_NAME[param.kind] + " | None" * may_be_none, first=first)
    base = _ANNOTATIONS.get(param.kind, param.text.removesuffix(" | None"))
    if base == "bool" and module == "nn.functional":
        return f"None if {param.name} is None else bool({param.name})" if may_be_none else f"bool({param.name})"
    if base in arguments.OF_ROWS:
        return arguments.converted(param.name, name, f"{base} | None" if may_be_none else base, arguments.OF_ROWS)
    constant = f"_constant({param.name}, {param.name!r}, {name!r})"
    return f"_Exact({constant})" if param.text == "int | float" else constant


_ANNOTATIONS = {Kind.DIM: "int", Kind.DIMS: "int | Sequence[int]", Kind.DTYPE: "DType"}
"""Annotations of parameters of these kinds in functions over tensors."""


_BY_NAME = {Kind.DIM: "Dim", Kind.DIMS: "Dims"}
"""The annotations of composites that say the same."""


def _variadic(op: OpDef) -> str:
    """The name of the shape parameter whose sizes may be given as separate arguments, or ''."""
    positional = [p for p in op.params if not p.keyword_only and p.kind is not Kind.KEY]
    if positional and positional[-1].kind is Kind.SHAPE and positional[-1].default is REQUIRED:
        return positional[-1].name
    return ""


def signature_text(op: OpDef, default: Callable[[Param], str]) -> list[str]:
    """The parameters of the public function; `default` gives the text of a default value."""
    variadic = _variadic(op)
    positional: list[str] = []
    keywords: list[str] = []
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
    if op.public.factory:
        keywords += ["device=None", "requires_grad=False", "pin_memory=False", "layout=None"]
    keywords += [f"{theirs}=None" for theirs in numpy_names_of(op.params).values()]
    if op.public.out is not None:
        keywords.append("out=None")
    if keywords and not variadic:
        positional.append("*")
    return positional + keywords


def _recording_lines(op: OpDef, variadic: str) -> list[str]:
    """Source that lets the extension record a call of the common kind (`recorders.py`)."""
    args = ["generator" if p.kind is Kind.KEY else p.name for p in op.params]
    args = [f"v_{name} if {name} is None else ({name},)" if name == variadic else name for name in args]
    is_factory = op.public.factory
    condition = "device is None" if is_factory else "" if op.public.out is None else "out is None"
    call = f"_record({', '.join(args)})" + (f" if {condition} else None" if condition else "")
    mark = ["    if requires_grad: _result._require_grad(True)"] if is_factory else []
    return [f"_result = {call}", "if _result is not None:", *mark, "    return _result"]


def _source(op: OpDef, name: str, recorded: bool) -> str:
    variadic = _variadic(op)
    names = numpy_names_of(op.params).items()
    lines = [f"if {theirs} is not None: {ours}, {theirs} = {theirs}, None" for ours, theirs in names]
    if op.public.out_decides:
        lines.append("if dtype is None and out is not None: dtype = _type_of_out(out)")
    if recorded:
        lines += _recording_lines(op, variadic)
    if fast_path.is_learnt(op):
        unless = f"if {variadic} is None: " if variadic else ""
        lines += ["_view = None", f"{unless}_view = _known({_parameters(op)})", "if _view is not None: return _view"]
    lines.append("_inputs = []")
    for param in op.params:
        lines += _lines(param, op, name, param.name == variadic)
    if op.check.limits is not None:
        scalars = ", ".join(p.name for p in op.params if p.kind is Kind.SCALAR)
        lines.append(f"_within(_op, {scalars})")
    static = "".join(f"s_{p.name}, " for p in op.params)
    if op.view:
        lines += _end_of_view(op, static)
    else:
        made_on = ", _device(device)" if op.public.factory else ""
        result = f"_finish(_op, ({static}), _inputs{made_on})"
        if op.public.factory:
            lines += [f"_result = {result}", "if requires_grad: _result._require_grad(True)", "return _result"]
        else:
            lines += [f"if out is None: return {result}", f"with _not_cast(): _result = {result}"]
            tensors = [p for p in op.params if p.name in op.public.separate or p.kind in (Kind.ARRAY, Kind.OPERAND)]
            read = read_tensors([f"{'*' * (p.kind is Kind.ARRAYS)}{p.name}" for p in tensors], op.public.separate)
            lines.append(f"return _write_out(out, _result, {op.public.out!r}, {read})")
    head = ", ".join(with_axis(op, name, signature_text(op, lambda p: f"d_{p.name}"), lines))
    if op.public.older:
        head = head.replace("*, ", "*_more, ", 1)
        places = ", ".join(p.name for p in op.params if not p.keyword_only)
        scalars = ", ".join(p.name for p in op.params if p.keyword_only)
        lines.insert(0, f"if _more: return {name}(**_older(_op, ({places}, *_more), ({scalars},)), out=out)")
    return f"def {name}({head}):\n    try:\n" + "".join(f"        {line}\n" for line in lines) + HANDLER


def _parameters(op: OpDef) -> str:
    """Source of the arguments of a view row, as `ViewRecorder` takes them."""
    variadic = _variadic(op)
    return ", ".join(["v_" * (p.name == variadic) + p.name for p in op.params])


def _end_of_view(op: OpDef, static: str) -> list[str]:
    """Source that records the call of a view row; the next one with these arguments needs not be sorted again."""
    variadic, first = _variadic(op), op.params[0].name
    lines = [f"_static = ({static})", f"_view = _finish_view(_op, _static, _inputs, {first})"]
    if fast_path.is_learnt(op):
        unless = f"if {variadic} is None: " if variadic else ""
        rest = _parameters(op).removeprefix(first).removeprefix(", ")
        lines.append(f"{unless}_known.learn(_call_of(_op, _static), {rest})")
    return [*lines, "return _view"]


HANDLER = (
    "    except _Overridden as signal:\n        return _dispatched(signal)\n"
    "    except _UNTIL_USER as error:\n        _end_at_user(error)\n        raise\n"
)


def read_tensors(names: Iterable[str], separate: Sequence[str]) -> str:
    """Source of two tuples: the tensors that are read, and those that must not share elements with `out`."""
    groups = ["", ""]
    for name in names:
        groups[name.removeprefix("*") in separate] += f"{name}, "
    return "({}), ({})".format(*groups)


def _compiled(op: OpDef, name: str) -> AnyCallable:
    recorder = recorder_of(op, _variadic(op))
    scope: dict[str, Arg] = {
        **_SCOPE,
        "_op": op,
        "_record": recorder,
        "_known": fast_path.known_views(op) if fast_path.is_learnt(op) else None,
        **{f"d_{p.name}": p.default for p in op.params if p.default is not REQUIRED},
    }
    execute(_source(op, name, recorder is not None), f"op.{op.name}", scope)
    function = scope[name]
    function.__doc__ = op.doc
    return function


def led_to(body: object, function: AnyCallable) -> AnyCallable:
    """A generated function, of which `inspect.getsource` gives the source of `body`; its signature stays its own."""
    generated: Arg = function
    generated.__signature__ = inspect.signature(function)
    generated.__wrapped__ = body
    return generated


def default_static(op: OpDef, inputs: int) -> Args | None:
    """The static part of a call with `inputs` tensors and all other parameters at their defaults; or None."""
    entries: list[Arg] = []
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


def is_plain(op: OpDef) -> bool:
    """Whether a call only records the row: one output, no view, no check."""
    return not (op.outputs or op.derivative.aux or op.view or op.check.elements)


def function_of(op: OpDef) -> AnyCallable:
    """The public function of a row."""
    return led_to(op.impl, _function_of(op))


def _function_of(op: OpDef) -> AnyCallable:
    general = _compiled(op, op.name.rpartition("::")[2])
    if not is_plain(op) or any(p.default is not REQUIRED or p.optional for p in op.params):
        return general
    static = default_static(op, len(op.params))
    if static is None or [p.name for p in op.params] not in (["input"], ["input", "other"]):
        return general
    call = call_of(op, static)
    if len(op.params) == 1:
        return documented(fast_path.unary(call, general), op.name, op.doc)
    return documented(fast_path.binary(call, general, op.params[1].kind is Kind.OPERAND), op.name, op.doc)


class _Rows:
    """`op.<row>`: the function of a row, created on first use."""

    def __getattr__(self, name: str) -> AnyCallable:
        try:
            function = function_of(TABLE[name])
        except KeyError:
            raise AttributeError(f"the operator table has no row {name!r}") from None
        setattr(self, name, function)
        return function


# no cell: its attributes are the rows; `op.add` is one of them
op: Arg = _Rows()
