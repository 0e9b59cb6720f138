"""Users' operators: rows of the operator table whose parts are registered one by one."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import update_wrapper
from typing import Any

import jax

from weft._base.autocast import DTYPE_INDEX
from weft._base.cell import LocalCell
from weft._base.dtype import DType
from weft._base.state import ambient
from weft._base.types import Annotation, AnyCallable, Arg, Result
from weft._interop.aten.calls import dispatch, is_dispatched
from weft._interop.kernel import Declaration, Kernel
from weft._interop.operators import publish, redefined
from weft._interop.schema import infer_schema, parsed
from weft._interop.structure import arrays_in
from weft._interop.trace import traced
from weft._tensor.autocast import not_cast
from weft._tensor.codegen import function_of
from weft._tensor.overriding import flat, handle, overriding_among
from weft._tensor.tensor import Tensor
from weft._tensor.view import write
from weft.autograd.function import FunctionCtx
from weft.errors import ArgumentError, GradientError, UnsupportedCallError, ValueRangeError
from weft.ops._autocast import Cast, CastClass, PerDevice, class_on
from weft.ops._dims import Rule
from weft.ops._kinds import REQUIRED, Kind, Param
from weft.ops._table import Derivative, OpDef, Public, Types

_below_autograd = LocalCell["tuple[CustomOp, ...]"]("the operators whose kernel for gradients runs", ())
"""The operators whose kernel for gradients is running: a call from there goes to their other kernels."""


Gradient = jax.Array | list[jax.Array | None] | None
"""Of an argument: one for a tensor, several for a list of tensors, None for what has none."""


class CustomOp:
    """An operator made by `custom_op` or `Library.define`: call it on tensors.

    `schema` says what it takes, as PyTorch writes it; "" if annotations say what no schema can.
    """

    def __init__(
        self,
        name: str,
        params: tuple[Param, ...],
        mutates: tuple[str, ...],
        schema: str = "",
        *,
        dims: Rule | None = None,
        cast: CastClass | PerDevice = Cast.NONE,
        vjp: Callable[..., object] | None = None,
    ) -> None:
        for wanted in mutates:
            if wanted not in [p.name for p in params if p.kind is Kind.ARRAY]:
                raise ValueRangeError(f"{name}: mutates_args names {wanted!r}, which is no tensor parameter of it")
        self.schema = schema
        self.public: Any = self  # what `__torch_function__` gets
        self._name, self._params, self._dims, self._cast, self._vjp = name, params, dims, cast, vjp
        self._declaration = Declaration(name, _signature(params), mutates)
        self._kernels: dict[str, Kernel] = {}  # by type of device; "" for all others
        self._functions: dict[str, Callable[..., Any]] = {}  # of the kernels that are enabled
        self._disabled: set[str] = set()
        self._for_gradients: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._name})>"

    @property
    def row(self) -> OpDef:
        """The row of the operator table, with the kernel for devices without one of their own."""
        return self._row("" if "" in self._kernels else next(iter(self._kernels)))

    def _row(self, device_type: str) -> OpDef:
        kernel = self._kernels[device_type]
        return OpDef(
            self._name,
            kernel,
            self._params,
            dims=self._dims,
            types=Types(autocast=self._cast),
            derivative=Derivative(vjp=self._vjp),
            public=Public(method="", out=""),
        )

    def _redefine(self, **fields: object) -> None:
        """Set fields of the rows, and make their functions anew."""
        for name, value in fields.items():
            setattr(self, f"_{name}", value)
        if self._functions:
            redefined()
        self._functions = {kind: function_of(self._row(kind)) for kind in self._kernels if kind not in self._disabled}

    # --- calls ---------------------------------------------------------------------------------------------------

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """Record the operator; tensors named in `mutates_args` get their new values."""
        relevant = list(flat(args, kwargs))
        if ambient().overrides.mode is not None or overriding_among(relevant):
            return handle(self.public, relevant, args, kwargs)
        if is_dispatched(args, kwargs):
            return dispatch(self.public, args, kwargs)
        below = _below_autograd.get()
        # A kernel for "Autograd" calls the operator again to compute, which must lead to the kernels below it and not
        # back.
        if self._for_gradients is not None and self not in below:
            with _below_autograd.within((*below, self)):
                return self._for_gradients(*args, **kwargs)
        mutates = self._declaration.mutates
        result = self._function_for(relevant)(*args, **kwargs)
        if not mutates:
            return None if isinstance(result, tuple) and not result else result
        results = list(result) if isinstance(result, tuple) else [result]
        arguments = self._declaration.signature.bind(*args, **kwargs).arguments
        # The new values are the last results, behind those that the caller gets.
        for name in reversed(mutates):
            write(arguments[name], results.pop()._read())
        return None if not results else results[0] if self._declaration.single else tuple(results)

    def _function_for(self, relevant: Sequence[object]) -> AnyCallable:
        kind = next((x.device.type for x in relevant if isinstance(x, Tensor)), "cpu")
        function = self._functions.get(kind) or self._functions.get("")
        if function is None:
            kinds = ", ".join(self._functions) or "none"
            raise UnsupportedCallError(
                f"Could not run '{self._name}' with arguments from the '{kind.upper()}' backend: it has kernels for "
                f"{kinds}; register_kernel one for this type of device"
            )
        return function

    # --- its parts -----------------------------------------------------------------------------------------------

    def register_kernel(
        self, device_types: str | Sequence[str] | None, fn: AnyCallable | None = None, /
    ) -> AnyCallable:
        """Set the body for tensors on a type of device ("cpu", "cuda", ...), on several, or on all others (None)."""
        if fn is None:
            return lambda fn: self.register_kernel(device_types, fn)
        kinds = (device_types,) if device_types is None or isinstance(device_types, str) else tuple(device_types)
        for kind in kinds:
            self.set_body(kind or "", fn)
        return fn

    def set_body(self, kind: str, body: AnyCallable, *, of_tensors: bool = True) -> None:
        """Set the body for one type of device, or for all others ("")."""
        self._kernels[kind] = Kernel(self._declaration, body, of_tensors=of_tensors)
        self._redefine()

    def set_body_for_gradients(self, body: AnyCallable) -> None:
        """Set what is called first. If it calls the operator itself, the other bodies are meant."""
        self._for_gradients = body
        redefined()

    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> AbstractContextManager[None]:
        """Use the kernel for a type of device or, if not `enabled`, the default one: from now on, or in a block."""
        before = device_type in self._disabled
        self._disabled = self._disabled - {device_type} if enabled else self._disabled | {device_type}
        self._redefine()
        return self._until_block_ends(device_type, before)

    @contextmanager
    def _until_block_ends(self, device_type: str, disabled: bool) -> Any:
        try:
            yield
        finally:
            self._disabled = self._disabled | {device_type} if disabled else self._disabled - {device_type}
            self._redefine()

    def register_fake(self, fn: AnyCallable, /) -> AnyCallable:
        """Set the fake: `fn` takes the operator's arguments, and returns empty tensors with the types of its results.

        It is needed if the body reads values.
        """
        self._declaration.fake = fn
        redefined()
        return fn

    def register_vmap(self, func: AnyCallable | None = None) -> AnyCallable:
        """Set the rule for `vmap`: `func(info, in_dims, *args)` returns the output(s), and the dim of examples of each.

        `info.batch_size` is the number of examples. `in_dims` has, for each argument, the dim of examples, or None if
        it is the same for all. Without a rule, the body is batched.
        """
        if func is None:
            return self.register_vmap
        self._declaration.batch = func
        self._redefine()
        return func

    def register_torch_dispatch(self, torch_dispatch_class: type, fn: AnyCallable | None = None, /) -> AnyCallable:
        """Raises `NotImplementedError`: there is no `__torch_dispatch__` here; use `__torch_function__`."""
        raise UnsupportedCallError(
            f"{self._name}: register_torch_dispatch: {torch_dispatch_class!r} is never asked, since "
            "there is no __torch_dispatch__ here; define __torch_function__ in the class, or use a TorchFunctionMode"
        )

    def register_autograd(self, backward: AnyCallable, /, *, setup_context: AnyCallable | None = None) -> None:
        """Set the derivative: `backward(ctx, *grads)` returns a gradient or None for each argument, in order.

        `setup_context(ctx, inputs, output)` stores on `ctx` what `backward` needs. Both are functions of tensors and
        are traced, so higher derivatives are possible.
        """

        def vjp(g: object, out: object, *args: Arg, **kwargs: Arg) -> list[Gradient]:
            flat = arrays_in((g, out, args))
            places: list[list[Any]] = []

            def run(tensors: list[Tensor]) -> list[Tensor]:
                grads, output, inputs = flat.rebuilt(tensors)
                ctx = FunctionCtx()
                is_tensor = [p.kind in (Kind.ARRAY, Kind.ARRAYS) for p in self._params]
                ctx.needs_input_grad = tuple(
                    of_tensor and x is not None for of_tensor, x in zip(is_tensor, inputs, strict=False)
                )
                if setup_context is not None:
                    extra = {"keyword_only_inputs": kwargs} if kwargs else {}
                    setup_context(ctx=ctx, inputs=inputs, output=output, **extra)
                # Those of what is written to are not `backward`'s: in PyTorch it has the results of the schema only.
                cotangents = grads if isinstance(grads, tuple) else (grads,)
                gradients = backward(ctx, *cotangents[: len(cotangents) - len(self._declaration.mutates)])
                places.append(self._by_tensor(gradients, len(inputs)))
                return [x for x in _flat(places[0]) if x is not None]

            # Within an operator nothing is cast: autocast has done that at its inputs.
            with not_cast():
                arrays = iter(traced(run, flat.inputs, f"the derivative of {self._name}"))
            return _filled(places[0], arrays)

        self._redefine(vjp=vjp)

    def register_autocast(self, device_type: str, cast_inputs: DType) -> None:
        """In autocast regions for a device type ("cpu", "cuda", …), cast floating inputs to `cast_inputs`.

        It replaces the class of this device type, and the body is not cast. CUDA's class is that of all accelerators.
        """
        if not isinstance(cast_inputs, DType):
            raise ValueRangeError(f"register_autocast: cast_inputs must be a dtype, got {cast_inputs!r}")
        if device_type not in DTYPE_INDEX:
            raise ValueRangeError(f"Unknown device type: {device_type!r}; expected one of {', '.join(DTYPE_INDEX)}")
        own: dict[str, CastClass] = {"cpu" if device_type == "cpu" else "accelerator": cast_inputs}
        classes = {"cpu": class_on(self._cast, "cpu"), "accelerator": class_on(self._cast, "cuda")}
        self._redefine(cast=PerDevice(**classes | own))

    def _by_tensor(self, gradients: object, count: int) -> list[Arg]:
        """The gradients of the tensor arguments, from those that `backward` returned for all `count` arguments."""
        grads = list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
        if len(grads) != count:
            raise GradientError(
                f"{self._name}: its backward must return a gradient or None for each of its {count} arguments, "
                f"got {len(grads)}"
            )
        return [g for g, p in zip(grads, self._params, strict=False) if p.kind in (Kind.ARRAY, Kind.ARRAYS)]


def _signature(params: tuple[Param, ...]) -> inspect.Signature:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return inspect.Signature(
        [
            inspect.Parameter(
                p.name, kinds[p.keyword_only], default=inspect.Parameter.empty if p.default is REQUIRED else p.default
            )
            for p in params
        ]
    )


def custom_op(
    name: str,
    fn: AnyCallable | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: object = None,
    dims: Rule | None = None,
    cast: CastClass | PerDevice = Cast.NONE,
    vjp: Callable[..., object] | None = None,
) -> Any:
    """Make an operator of the decorated function, called `namespace::name`; it is `weft.ops.namespace.name`, too.

    Its parameters are annotated: `weft.Tensor` for a body over tensors or `jax.Array` for one over arrays (also
    optional, and sequences of them); all others are constants. Or `schema` says what they are, as in `(Tensor x, int
    n=1) -> Tensor`. A body over tensors is traced once for each combination of types; one that looks at values runs on
    the host and needs `register_fake`. Tensors that it writes to are named in `mutates_args`. The body is for tensors
    on `device_types` or, without these, for all that have no kernel of their own.

    `dims` is the dimension rule, which checks shapes (see `weft.library`); `cast` is the autocast class of the operator
    (within the body nothing is cast). `vjp`, for a body over arrays, takes the cotangent(s), the output(s) and the
    arguments, and returns a gradient or None for each tensor argument; bodies over tensors use `register_autograd`.
    Without either, the body itself is differentiated. `tags` are accepted for compatibility.
    """
    del tags
    if fn is None:
        return lambda fn: custom_op(
            name, fn, mutates_args=mutates_args, device_types=device_types, schema=schema, dims=dims, cast=cast, vjp=vjp
        )
    require_name(name)
    if schema is None:
        params, of_tensors = _params(name, fn)
        mutates = (mutates_args,) if isinstance(mutates_args, str) else tuple(mutates_args)
        # As in PyTorch: it may write to any tensor, so it counts as writing to all.
        if mutates == ("unknown",):
            mutates = tuple([p.name for p in params if p.kind is Kind.ARRAY])
        text = _inferred_schema(name, fn, mutates)
    else:
        entry, of_tensors = parsed(schema), True
        params, mutates, text = entry.params, entry.mutates, f"{name}{schema[schema.index('(') :]}"
    operator = CustomOp(name, params, mutates, text, dims=dims, cast=cast, vjp=vjp)
    for kind in (device_types,) if device_types is None or isinstance(device_types, str) else device_types:
        operator.set_body(kind or "", fn, of_tensors=of_tensors)
    update_wrapper(operator, fn)
    publish(operator, name)
    return operator


def require_name(name: str) -> tuple[str, str]:
    """The namespace and the name of `namespace::name`; `ValueError` for anything else."""
    namespace, _, own = name.partition("::")
    if not (namespace.isidentifier() and own.isidentifier()):
        raise ValueRangeError(f"custom_op: the name should be of the form namespace::name, got {name!r}")
    return namespace, own


def _inferred_schema(name: str, body: AnyCallable, mutates: tuple[str, ...]) -> str:
    try:
        return infer_schema(body, mutates_args=mutates, op_name=name)
    except ValueError:
        return ""


# --- parameters from annotations --------------------------------------------------------------------------------


def _params(name: str, body: AnyCallable) -> tuple[tuple[Param, ...], bool]:
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


def _kind_of(hint: Annotation) -> tuple[Kind, type | None, bool]:
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


def _flat(grads: Iterable[object]) -> list[Arg]:
    return [x for g in grads for x in (g if isinstance(g, (list, tuple)) else [g])]


def _filled(grads: Iterable[object], arrays: Iterator[jax.Array]) -> list[Gradient]:
    """The gradients with arrays in place of tensors."""
    return [
        [None if x is None else next(arrays) for x in g]
        if isinstance(g, (list, tuple))
        else None
        if g is None
        else next(arrays)
        for g in grads
    ]
