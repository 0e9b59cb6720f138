"""The public functions: each row that has a public name, and functions over tensors that are composed of rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps

from weft._base.generated import execute
from weft._base.types import AnyCallable, Arg, Args, Kwargs
from weft._tensor import arguments
from weft._tensor.autocast import casting, not_cast
from weft._tensor.codegen import HANDLER, led_to, op, read_tensors
from weft._tensor.numpy_names import WITH_NUMPY_NAMES, numpy_names_of
from weft._tensor.output import write_out
from weft.ops._autocast import CastClass, PerDevice
from weft.ops._kinds import REQUIRED
from weft.ops._rows import documented
from weft.ops._table import PLAIN, TABLE, OpDef, Public


@dataclass(frozen=True, slots=True)
class PublicFunction:
    """A function over tensors and the forms in which it is public; `row` is that which it calls, if it is no more."""

    name: str
    function: AnyCallable
    public: Public
    row: OpDef | None = None


# no cell: filled when the library is imported
FUNCTIONS: dict[tuple[str, str], PublicFunction] = {}
"""The public functions, by module ("" is the package) and name."""


def _register(entry: PublicFunction) -> None:
    public = entry.public
    module = public.module if public.function or not public.also else public.also[0]
    key = (module, entry.name)
    if key in FUNCTIONS:
        raise ValueError(
            f"{module or 'the package'} has two functions {entry.name!r}; a row that a function of its "
            "name is composed of is INTERNAL"
        )
    FUNCTIONS[key] = entry


for _row in TABLE.values():
    if _row.public.has_forms():
        _register(PublicFunction(_row.name, getattr(op, _row.name), _row.public, _row))


def _bound(
    body: AnyCallable,
    name: str,
    module: str,
    out: str | None,
    separate: Sequence[str],
    cast: CastClass | PerDevice | None,
    rest: Callable[[Args], Args] | None,
    twin: AnyCallable | None = None,
) -> AnyCallable:
    """The public form of a composite; its arguments are converted according to its annotations, as for rows."""
    scope: Kwargs = {
        **arguments.SCOPE,
        "_body": body if cast is None else casting(body, cast),
        "_write_out": write_out,
        "_not_cast": not_cast,
        "_text": out,
        "_rest": rest,
        "_twin": twin,
    }
    kinds = arguments.OF_FUNCTIONAL if module == "nn.functional" else arguments.BY_ANNOTATION
    head: list[str] = []
    passed: list[str] = []
    has_star = False
    first = next(iter(inspect.signature(body).parameters), "")
    only_by_place = False
    of_body = inspect.signature(body).parameters.values()
    for p in of_body:
        if only_by_place and p.kind is not p.POSITIONAL_ONLY:
            head.append("/")
        only_by_place = p.kind is p.POSITIONAL_ONLY
        if p.kind is p.KEYWORD_ONLY and not has_star:
            head.append("*")
        has_star = has_star or p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY)
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else f"=d_{p.name}"
        if default:
            scope[f"d_{p.name}"] = p.default
        head.append(f"{star}{p.name}{default}")
        value = star + (p.name if star else arguments.converted(p.name, name, str(p.annotation), kinds, first))
        passed.append(f"{p.name}={value}" if p.kind is p.KEYWORD_ONLY else value)
    body_call = f"_body({', '.join(passed)})"
    call = f"return {body_call}"
    values = "".join(f"{'*' * (p.kind is p.VAR_POSITIONAL)}{p.name}, " for p in of_body if p.kind is not p.VAR_KEYWORD)
    if out is not None:
        head += ["out=None"] if has_star else ["*", "out=None"]
        read = read_tensors(inspect.signature(body).parameters, separate)
        call = f"if out is None: {call}\n            with _not_cast(): result = {body_call}\n            "
        call += f"return _write_out(out, result, _text, {read})"
    if rest is not None:
        (star,) = [p.name for p in of_body if p.kind is p.VAR_POSITIONAL]
        call = f"{star} = _rest({star})\n            {call}"
    if twin is not None:
        parameters = ", ".join([p.name for p in of_body])
        call = f"_result = _twin({parameters})\n            if _result is not None: return _result\n            {call}"
    for ours, theirs in (numpy_names_of(of_body) if module in WITH_NUMPY_NAMES else {}).items():
        head += [f"{theirs}=None"] if has_star or "*" in head else ["*", f"{theirs}=None"]
        call = f"if {theirs} is not None: {ours}, {theirs} = {theirs}, None\n            {call}"
    source = (
        f"def bound({', '.join(head)}):\n    try:\n        try:\n            {call}\n"
        f"        except _LEAKS as error:\n            raise _leaked({name!r}, error, ({values}))\n"
        f"{HANDLER}"
    )
    execute(source, f"{module}.{name}".lstrip("."), scope)
    bound: Arg = wraps(body)(scope["bound"])
    if out is not None:
        bound.__signature__ = _with_out(inspect.signature(body))
    return bound


def _with_out(signature: inspect.Signature) -> inspect.Signature:
    """A signature with the parameter `out`, which comes before `**kwargs`."""
    out = inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Any")
    return signature.replace(parameters=[*signature.parameters.values(), out])


def composite(
    name: str | None = None,
    *,
    doc: str | None = None,
    public: Public = PLAIN,
    cast: CastClass | PerDevice | None = None,
    rest: Callable[[Args], Args] | None = None,
    twin: AnyCallable | None = None,
) -> Callable[[AnyCallable], AnyCallable]:
    """Make the decorated function, which is composed of rows, public in the forms that `public` says.

    `name` and `doc` are for functions that are created within another one. With `cast`, an autocast class, tensors are
    cast before the call and not within it; without, by the rows that it calls. `rest` changes the arguments of `*args`
    first, also those that `__torch_function__` gets. `twin` is a function of the extension for the common calls: it
    gets all arguments in order, and returns None for a call that it does not take.
    """

    def make(body: AnyCallable) -> AnyCallable:
        own = name or body.__name__.rstrip("_")
        if name and "<locals>" in body.__qualname__:
            documented(body, name, doc or body.__doc__ or "")
        forms = public.named(own, body.__code__.co_varnames[: body.__code__.co_argcount])
        bound = _bound(body, forms.method or own, forms.module, forms.out, forms.separate, cast, rest, twin)
        _register(PublicFunction(own, bound, forms))
        return body

    return make


def with_inplace_argument(row: OpDef, function: AnyCallable, inplace: AnyCallable) -> AnyCallable:
    """The function of a row with a further argument `inplace`; generated as source, with the row's own parameters."""
    name, options = row.name, row.params[1:]
    head = "".join(f"{p.name}: float{'' if p.default is REQUIRED else f' = {p.default}'}, " for p in options)
    passed = ", ".join(["input", *(p.name for p in options)])
    source = f"""def {name}(input: Tensor, {head}inplace: bool = False) -> Tensor:
    return (_inplace if inplace else _row)({passed})"""
    scope: Kwargs = {"_row": function, "_inplace": inplace}
    execute(source, f"nn.functional.{name} (inplace)", scope)
    body = documented(scope[name], name, f"`torch.nn.{name}`, written to the input if `inplace`.")
    return _bound(led_to(row.impl, body), name, "nn.functional", None, (), None, None)
