"""Graphs that are not computed yet, as StableHLO."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType

import jax
import jax.numpy as jnp

from weft._base.pending import Pending
from weft._base.types import AnyCallable, Arg
from weft._lazy.form import Application
from weft._lazy.liveness import escaping
from weft._lazy.outline import form_of
from weft._lazy.replicated import of_one_replica
from weft._lazy.signature import Arrays, structs_of
from weft._lazy.sites import site_of
from weft._lazy.value import Value
from weft.ops._jax import jit


def living(pending: Pending) -> list[Value]:
    """The values of a list that a flush would compute: those to which something outside of it refers."""
    held = escaping(pending)
    return [value for value in pending if id(value) in held]


def text(wanted: Sequence[Value], *, lines: bool = False) -> str:
    """The graph of some values; with `lines`, its locations name the lines of the user at which it was recorded."""
    return _lowered(wanted).as_text(debug_info=lines)


def bytecode(wanted: Sequence[Value]) -> bytes:
    """The graph of some values, as MLIR bytecode of the StableHLO dialect."""
    file = io.BytesIO()
    _lowered(wanted).compiler_ir("stablehlo").operation.write_bytecode(file)
    return file.getvalue()


def _lowered(wanted: Sequence[Value]) -> Arg:
    """The pending graph of some values in jax's form. Arrays are its parameters, Python numbers its constants."""
    form, numbers, leaves = form_of(wanted, lambda x: x.is_pending)
    sites = {number: site_of(value) for value, number in numbers.items()}
    function = form.function(partial(_body, sites), barriers=False)
    arrays = [leaf for leaf in leaves if not leaf.aval.weak]

    def main(*args: jax.Array) -> list[jax.Array]:
        rest = iter(args)
        return function(*[jnp.asarray(leaf.number) if leaf.aval.weak else next(rest) for leaf in leaves])

    has_collectives = any(signature.collective for signature, _, _ in form.applications)
    lowering: Arg = jit(of_one_replica(main) if has_collectives else main)
    return lowering.lower(*structs_of([leaf.aval for leaf in arrays]))


def _body(sites: dict[int, str | None], application: Application) -> Callable[..., Arrays]:
    """What computes an application, called as if from the line at which it was recorded."""
    signature, _, values = application
    site = sites[values[0][0]]
    return signature.fn if site is None else partial(_at(site), signature.fn)


def _at(site: str) -> AnyCallable:
    """A caller of functions whose frame has this `file:line`, which is where jax finds what it writes as locations."""
    file, _, line = site.rpartition(":")
    code = _call.__code__.replace(co_filename=file, co_firstlineno=int(line) - 1, co_name="recorded")
    return FunctionType(code, {})


def _call(function: Callable[..., Arrays], *arrays: jax.Array) -> Arrays:
    return function(*arrays)
