"""`weft.library.custom_op`: users' rows of the operator table.

The body is a function of jax arrays, or a function of tensors, which is traced into one. A body that reads values (such
as NumPy code) runs on the host while the program waits for it; a fake gives the types of its results.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial, update_wrapper
from typing import Any

import jax
import numpy as np

from weft._base.autocast import DTYPE_INDEX
from weft._base.dtype import DType
from weft._interop.structure import Flat, arrays_in
from weft._interop.trace import NeedsValueError, traced
from weft._tensor.autocast import not_cast
from weft._tensor.codegen import function_of
from weft._tensor.convert import from_host
from weft._tensor.tensor import Tensor
from weft._tensor.view import write
from weft.autograd.function import FunctionCtx
from weft.errors import ArgumentError, CompileError, GradientError, ShapeError, ValueRangeError
from weft.ops._dims import Rule
from weft.ops._table import Cast, CastClass, Kind, OpDef, Param, PerDevice, class_on


class CustomOp:
    """An operator made by `custom_op`: call it on tensors."""

    def __init__(
        self,
        name: str,
        body: Callable[..., Any],
        mutates: tuple[str, ...],
        dims: Rule | None,
        cast: CastClass | PerDevice,
        vjp: Callable[..., Any] | None,
    ) -> None:
        params, of_tensors = _params(name, body)
        self._name = name
        self._body = body
        self._signature = inspect.signature(body)
        self._mutates = mutates
        self._fake: Callable[..., Any] | None = None
        self._host = False  # whether the body was found to read values
        self._single = True
        for wanted in mutates:
            if wanted not in [p.name for p in params if p.kind is Kind.ARRAY]:
                raise ValueRangeError(f"{name}: mutates_args names {wanted!r}, which is no tensor parameter of it")
        impl = self._traced_body if of_tensors else body
        self._define(OpDef(name, impl, params, dims, cast=cast, vjp=vjp))
        update_wrapper(self, body)

    def _define(self, row: OpDef) -> None:
        self.row = row
        self._function = function_of(row)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._name})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record the operator; tensors named in `mutates_args` get their new values."""
        result = self._function(*args, **kwargs)
        if not self._mutates:
            return None if isinstance(result, tuple) and not result else result
        results = list(result) if isinstance(result, tuple) else [result]
        arguments = self._signature.bind(*args, **kwargs).arguments
        for name in reversed(self._mutates):
            write(arguments[name], results.pop()._read())
        return None if not results else results[0] if self._single else tuple(results)

    # --- the fake and the derivative ---------------------------------------------------------------------------

    def register_fake(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Set the fake: `fn` takes the operator's arguments, and returns empty tensors with the types of its results.

        It is needed if the body reads values.
        """
        self._fake = fn
        return fn

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Any = None) -> None:
        """Set the derivative: `backward(ctx, *grads)` returns a gradient or None for each argument, in order.

        `setup_context(ctx, inputs, output)` stores on `ctx` what `backward` needs. Both are functions of tensors and
        are traced, so higher derivatives are possible.
        """

        def vjp(g: Any, out: Any, *args: Any, **kwargs: Any) -> list[Any]:
            flat = arrays_in((g, out, args))
            places: list[list[Any]] = []

            def run(tensors: list[Tensor]) -> list[Tensor]:
                grads, output, inputs = flat.rebuilt(tensors)
                ctx = FunctionCtx()
                is_tensor = [p.kind in (Kind.ARRAY, Kind.ARRAYS) for p in self.row.params]
                ctx.needs_input_grad = tuple(
                    of_tensor and x is not None for of_tensor, x in zip(is_tensor, inputs, strict=False)
                )
                if setup_context is not None:
                    extra = {"keyword_only_inputs": kwargs} if kwargs else {}
                    setup_context(ctx=ctx, inputs=inputs, output=output, **extra)
                cotangents = grads if isinstance(grads, tuple) else (grads,)
                gradients = backward(ctx, *cotangents[: len(cotangents) - len(self._mutates)])
                places.append(self._by_tensor(gradients, len(inputs)))
                return [x for x in _flat(places[0]) if x is not None]

            with not_cast():
                arrays = iter(traced(run, flat.inputs, f"the derivative of {self._name}"))
            return _filled(places[0], arrays)

        self._define(replace(self.row, vjp=vjp))

    def register_autocast(self, device_type: str, cast_inputs: DType) -> None:
        """In autocast regions for a device type ("cpu", "cuda", …), cast floating inputs to `cast_inputs`.

        It replaces the class of this device type, and the body is not cast. CUDA's class is that of all accelerators.
        """
        if not isinstance(cast_inputs, DType):
            raise ValueRangeError(f"register_autocast: cast_inputs must be a dtype, got {cast_inputs!r}")
        if device_type not in DTYPE_INDEX:
            raise ValueRangeError(f"Unknown device type: {device_type!r}; expected one of {', '.join(DTYPE_INDEX)}")
        own: dict[str, CastClass] = {"cpu" if device_type == "cpu" else "accelerator": cast_inputs}
        classes = {"cpu": class_on(self.row.cast, "cpu"), "accelerator": class_on(self.row.cast, "cuda")}
        self._define(replace(self.row, cast=PerDevice(**classes | own)))

    def _by_tensor(self, gradients: Any, count: int) -> list[Any]:
        """The gradients of the tensor arguments, from those that `backward` returned for all `count` arguments."""
        grads = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
        if len(grads) != count:
            raise GradientError(
                f"{self._name}: its backward must return a gradient or None for each of its {count} arguments, "
                f"got {len(grads)}"
            )
        return [g for g, p in zip(grads, self.row.params, strict=False) if p.kind in (Kind.ARRAY, Kind.ARRAYS)]

    # --- the body, over arrays -----------------------------------------------------------------------------------

    def _traced_body(self, *args: Any, **kwargs: Any) -> tuple[jax.Array, ...]:
        flat = arrays_in((args, kwargs))
        if not self._host:
            try:
                with not_cast():
                    return tuple(traced(partial(self._run, flat), flat.inputs, self._name))
            except NeedsValueError:
                self._host = True
        return self._on_host(flat)

    def _run(self, flat: Flat, tensors: list[Tensor]) -> list[Tensor]:
        """The body on tensors: its results, then the new values of what it writes to."""
        args, kwargs = flat.rebuilt(tensors)
        bound = self._signature.bind(*args, **kwargs).arguments
        written = [bound[name] for name in self._mutates]
        before = [tensor._read() for tensor in tensors]
        result = self._body(*args, **kwargs)
        for tensor, old in zip(tensors, before, strict=True):
            if tensor._read() is not old and not any(tensor is x for x in written):
                name = next(name for name, x in bound.items() if x is tensor)
                raise CompileError(f"{self._name}: it writes to {name!r}, which mutates_args does not name")
        self._single = not isinstance(result, (tuple, list))
        return [*self._outputs(result), *written]

    def _outputs(self, result: Any) -> list[Tensor]:
        """The tensors that the body or its fake returned; `TypeError` if it returned anything else."""
        results = [] if result is None else list(result) if isinstance(result, (tuple, list)) else [result]
        for x in results:
            if not isinstance(x, Tensor):
                raise ArgumentError(f"{self._name}: an operator gives tensors, and it returned a {type(x).__name__}")
        return results

    def _on_host(self, flat: Flat) -> tuple[jax.Array, ...]:
        if self._fake is None:
            raise CompileError(
                f"{self._name}: its body looks at values, so it runs on the host, and the types of its results must be "
                "known before; register_fake a function that gives empty tensors of these types"
            )
        fake = self._fake

        def types_of(tensors: list[Tensor]) -> list[Tensor]:
            args, kwargs = flat.rebuilt(tensors)
            return self._outputs(fake(*args, **kwargs))

        structs = jax.eval_shape(lambda *a: tuple(traced(types_of, a, f"the fake of {self._name}")), *flat.inputs)

        def host(*arrays: Any) -> tuple[np.ndarray[Any, Any], ...]:
            results = [tensor.numpy() for tensor in self._run(flat, [from_host(np.asarray(a)) for a in arrays])]
            for at, (array, struct) in enumerate(zip(results, structs, strict=True)):
                if (array.shape, array.dtype) != (struct.shape, struct.dtype):
                    raise ShapeError(
                        f"{self._name}: result {at} is {array.dtype}{list(array.shape)}, and its fake says "
                        f"{struct.dtype}{list(struct.shape)}"
                    )
            return tuple(results)

        def refuse(*_: Any) -> Any:
            raise GradientError(
                f"Trying to backward through {self._name} but no autograd formula was registered. Please use "
                "register_autograd to add one."
            )

        @jax.custom_vjp
        def call(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            return jax.pure_callback(host, structs, *arrays, vmap_method="sequential")

        call.defvjp(
            lambda *arrays: (call(*arrays), arrays),
            lambda arrays, _: jax.pure_callback(refuse, arrays),
        )
        return call(*flat.inputs)


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
    dims: Rule | None = None,
    cast: CastClass | PerDevice = Cast.NONE,
    vjp: Callable[..., Any] | None = None,
) -> Any:
    """Make an operator of the decorated function, called `namespace::name`.

    Its parameters are annotated: `weft.Tensor` for a body over tensors or `jax.Array` for one over arrays (also
    optional, and sequences of them); all others are constants. A body over tensors is traced once for each
    combination of types; one that looks at values runs on the host and needs `register_fake`. Tensors that it writes
    to are named in `mutates_args`.

    `dims` is the dimension rule, which checks shapes (see `weft.library`); `cast` is the autocast class of the operator
    (within the body nothing is cast). `vjp`, for a body over arrays, takes the cotangent(s), the output(s) and the
    arguments, and returns a gradient or None for each tensor argument; bodies over tensors use `register_autograd`.
    Without either, the body itself is differentiated. `device_types`, `schema` and `tags` are accepted for
    compatibility and ignored: the compiler serves every device.
    """
    del device_types, schema, tags
    if fn is None:
        return lambda fn: custom_op(name, fn, mutates_args=mutates_args, dims=dims, cast=cast, vjp=vjp)
    namespace, _, own = name.partition("::")
    if not (namespace.isidentifier() and own.isidentifier()):
        raise ValueRangeError(f"custom_op: the name should be of the form namespace::name, got {name!r}")
    mutates = (mutates_args,) if isinstance(mutates_args, str) else tuple(mutates_args)
    return CustomOp(name, fn, mutates, dims, cast, vjp)


# --- parameters from annotations --------------------------------------------------------------------------------


def _params(name: str, body: Callable[..., Any]) -> tuple[tuple[Param, ...], bool]:
    """The parameters of the operator, and whether its body is one over tensors."""
    params: list[Param] = []
    kinds: set[type] = set()
    signature = inspect.signature(body, eval_str=True)
    for p in signature.parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise ArgumentError(f"{name}: parameter {str(p)!r}: an operator has a fixed number of parameters")
        if p.annotation is p.empty:
            raise ArgumentError(f"{name}: parameter {p.name!r} must have a type annotation")
        kind, of, optional = _kind_of(p.annotation)
        kinds |= {of} if of else set()
        params.append(Param(p.name, kind, p.default, p.kind is p.KEYWORD_ONLY, optional))
    if len(kinds) > 1:
        raise ArgumentError(f"{name}: its parameters are tensors and jax arrays; annotate all as one of them")
    return tuple(params), (kinds or {_kind_of(signature.return_annotation)[1]}) != {jax.Array}


def _kind_of(hint: Any) -> tuple[Kind, type | None, bool]:
    """By its annotation: a parameter's kind; `Tensor`, `jax.Array`, or None for a constant; whether it may be None."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [part for part in parts if part is not type(None)]
        kind, of, _ = _kind_of(inner[0]) if len(inner) == 1 else (Kind.STATIC, None, False)
        return kind, of, len(inner) < len(parts)
    if typing.get_origin(hint) in (list, tuple, Sequence) and parts and parts[0] in (Tensor, jax.Array):
        return Kind.ARRAYS, parts[0], False
    return (Kind.ARRAY, hint, False) if hint in (Tensor, jax.Array) else (Kind.STATIC, None, False)


# --- gradients, some of them in lists -----------------------------------------------------------------------------


def _flat(grads: Iterable[Any]) -> list[Any]:
    return [x for g in grads for x in (g if isinstance(g, (list, tuple)) else [g])]


def _filled(grads: Iterable[Any], arrays: Any) -> list[Any]:
    """The gradients with arrays in place of tensors."""
    return [
        [None if x is None else next(arrays) for x in g]
        if isinstance(g, (list, tuple))
        else None
        if g is None
        else next(arrays)
        for g in grads
    ]
