"""`Library`: users' operators defined by schemas, and `weft.library`'s functions that register their parts by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from weft._base.dtype import DType
from weft._base.types import AnyCallable, Arg
from weft._interop.custom import CustomOp, require_name
from weft._interop.operators import lookup, publish, when_defined, withdraw
from weft._interop.provided import ProvidedOperator
from weft._interop.schema import parsed
from weft.errors import RegistrationError, SchemaError, UnsupportedCallError, UnsupportedError, ValueRangeError

_KINDS = ("DEF", "IMPL", "FRAGMENT")

_BODIES = {
    "": "", "CompositeExplicitAutograd": "", "CompositeImplicitAutograd": "",
    "CompositeExplicitAutogradNonFunctional": "", "CPU": "cpu", "CUDA": "cuda", "XLA": "xla",
}  # fmt: skip
"""Dispatch keys under which a kernel is a body, and the type of device that it is for."""

_TYPES = {"default": "", "cpu": "cpu", "cuda": "cuda", "xla": "xla"}
"""The `types` of the function `impl`, likewise."""


class Library:
    """The operators of a namespace: `define` them by schemas, and `impl` their kernels.

    `kind` is "DEF" for the one library that founds the namespace, "FRAGMENT" for one that adds operators to it, and
    "IMPL" for one that only adds kernels, by default under `dispatch_key`.
    """

    _founded: set[str] = set()  # noqa: RUF012  shared on purpose: a namespace is founded once

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in _KINDS:
            raise ValueRangeError(f"Unsupported library type: {kind}; expected one of {', '.join(_KINDS)}")
        if ns in ("prim", "prims") or not ns.isidentifier():
            raise ValueRangeError(f"{ns!r} is no namespace for libraries; choose the name of your project")
        if kind == "DEF":
            if ns in self._founded:
                raise RegistrationError(
                    f"Only a single Library('{ns}', 'DEF') can exist; use Library('{ns}', 'FRAGMENT') to add operators"
                )
            self._founded.add(ns)
        self.ns = ns
        self.kind = kind
        self.dispatch_key = dispatch_key
        self._defined: list[tuple[str, str]] = []
        self._implemented: set[tuple[str, str]] = set()

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: object = ()) -> str:
        """Define an operator, as in `define("foo(Tensor x, int n=1) -> Tensor")`, and return its name.

        What a schema marks as written to, `Tensor(a!) x`, gets its new value from the kernel's writes. `RuntimeError`
        if there is such an operator. `tags` are accepted for compatibility.
        """
        del tags
        if self.kind == "IMPL":
            raise RegistrationError(f"{self!r}: a library of kind IMPL defines no operators; make one of kind FRAGMENT")
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RegistrationError(f"Invalid alias_analysis type {alias_analysis}")
        entry = parsed(schema)
        own = entry.name.removeprefix(f"{self.ns}::")
        if not own.isidentifier():
            raise SchemaError(f"{schema!r}: expected an operator of the namespace {self.ns!r}, got {entry.name!r}")
        name = f"{self.ns}::{own}"
        full = name + (f".{entry.overload}" if entry.overload else "")
        if _exists(full):
            raise RegistrationError(f"Tried to register an operator ({full}) with the same name twice")
        text = f"{full}{schema[schema.index('(') :]}"
        publish(CustomOp(name, entry.params, entry.mutates, text), name, entry.overload)
        self._defined.append((name, entry.overload))
        return own + (f".{entry.overload}" if entry.overload else "")

    def impl(
        self,
        op_name: Arg,
        fn: AnyCallable,
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Set a kernel of an operator of this namespace for a dispatch key, such as "CPU", "Meta" or "Autograd".

        Without a key, it is the library's. A kernel for "Autograd" is called first, and calls the operator for the
        others; one for "Meta" is the fake. `RuntimeError` if this library has set one for this key, unless
        `allow_override`.
        """
        if not callable(fn):
            raise ValueRangeError(f"Input function is required to be a callable but found type {type(fn)}")
        if with_keyset:
            raise UnsupportedError("impl: with_keyset=True: there are no sets of dispatch keys here")
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        name = self._full_name(op_name)
        if (name, key) in self._implemented and not allow_override:
            raise RegistrationError(
                f"This is not allowed since there's already a kernel registered from python overriding {name}'s "
                f"behavior for {key} dispatch key and {self.ns} namespace."
            )
        operator = lookup(name)
        # A fallthrough only says that the key has nothing of its own.
        if fn is not fallthrough_kernel:
            _set(operator, key, fn)
        self._implemented.add((name, key))

    def fallback(self, fn: AnyCallable, dispatch_key: str = "", *, with_keyset: bool = False) -> NoReturn:
        """Raises `NotImplementedError`: there is no dispatcher whose operators all could fall back on one kernel."""
        raise UnsupportedError(
            f"Library.fallback({dispatch_key!r}): no kernel can be set for all operators at once; "
            "weft.overrides.TorchFunctionMode sees all calls"
        )

    def _full_name(self, op_name: Arg) -> str:
        name = op_name if isinstance(op_name, str) else op_name.name()
        if "::" not in name:
            return f"{self.ns}::{name}"
        if name.partition("::")[0] != self.ns:
            raise RegistrationError(f"{self!r} has operators of the namespace {self.ns!r} only, and not {name!r}")
        return name

    def _register_fake(self, op_name: str, fn: AnyCallable, _stacklevel: int = 1, **_: object) -> None:
        lookup(self._full_name(op_name)).register_fake(fn)

    def _destroy(self) -> None:
        """Remove what was defined."""
        for name, overload in self._defined:
            withdraw(name, overload)
        self._defined.clear()
        if self.kind == "DEF":
            self._founded.discard(self.ns)


def _exists(name: str) -> bool:
    try:
        lookup(name)
    except RegistrationError:
        return False
    return True


def _set(operator: CustomOp | ProvidedOperator, key: str, fn: AnyCallable) -> None:
    """Set the part of an operator that a dispatch key stands for."""
    if isinstance(operator, ProvidedOperator) and key not in _BODIES:
        return  # it has all of its parts
    if key == "Meta":
        operator.register_fake(fn)
    elif key in _BODIES:
        operator.set_body(_BODIES[key], fn)
    elif key in ("Autograd", "AutogradCPU", "AutogradCUDA", "AutogradXLA"):
        operator.set_body_for_gradients(fn)
    else:
        raise UnsupportedError(
            f"{operator!r}: there is no dispatch key {key!r}; there are {', '.join(filter(None, _BODIES))}, "
            "Meta and Autograd"
        )


def fallthrough_kernel() -> NoReturn:
    """What `Library.impl` takes where an operator needs no kernel: the next one is called."""
    raise UnsupportedCallError("fallthrough_kernel() should never be called.")


@contextmanager
def _scoped_library(*args: Arg, **kwargs: Arg) -> Iterator[Library]:
    library = Library(*args, **kwargs)
    try:
        yield library
    finally:
        library._destroy()


# --- by name ------------------------------------------------------------------------------------------------------


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: object = ()) -> None:
    """Define the operator `namespace::name` with a schema such as `(Tensor x) -> Tensor`."""
    if not isinstance(qualname, str):
        raise ValueRangeError(
            f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}"
        )
    namespace, own = require_name(qualname)
    if not schema.lstrip().startswith("("):
        raise SchemaError(
            f'define(qualname, schema): expected a schema like e.g. "(Tensor x) -> Tensor" but got {schema!r}'
        )
    (lib or Library(namespace, "FRAGMENT")).define(own + schema, tags=tags)


def impl(
    qualname: str, types: str | Sequence[str], func: AnyCallable | None = None, *, lib: Library | None = None
) -> AnyCallable:
    """Set the kernel of an operator for types of devices ("cpu", "cuda", a sequence, or "default")."""
    if func is None:
        return lambda func: impl(qualname, types, func, lib=lib)
    operator = lookup(qualname)
    for kind in (types,) if isinstance(types, str) else types:
        if kind in _TYPES:
            operator.set_body(_TYPES[kind], func)
        else:
            _set(operator, kind, func)
    return func


def register_kernel(
    op: Arg, device_types: str | Sequence[str], func: AnyCallable | None = None, /, *, lib: Library | None = None
) -> AnyCallable:
    """`CustomOp.register_kernel` of an operator, or of the one with this name."""
    del lib
    return lookup(op).register_kernel(device_types, *([] if func is None else [func]))


def register_fake(
    op: Arg, func: AnyCallable | None = None, /, *, lib: Library | None = None, **_: object
) -> AnyCallable:
    """`CustomOp.register_fake` of an operator, or of the one with this name, which may be defined later."""
    del lib

    def register(rule: AnyCallable) -> AnyCallable:
        when_defined(op, lambda operator: operator.register_fake(rule))
        return rule

    return register if func is None else register(func)


impl_abstract = register_fake
"""The older name of `register_fake`."""


def register_autograd(
    op: Arg, backward: AnyCallable, /, *, setup_context: AnyCallable | None = None, lib: Library | None = None
) -> None:
    """`CustomOp.register_autograd` of an operator, or of the one with this name, which may be defined later."""
    del lib
    when_defined(op, lambda operator: operator.register_autograd(backward, setup_context=setup_context))


def register_vmap(op: Arg, func: AnyCallable | None = None, /, *, lib: Library | None = None) -> AnyCallable:
    """`CustomOp.register_vmap` of an operator, or of the one with this name."""
    del lib
    return lookup(op).register_vmap(func)


def register_autocast(op: Arg, device_type: str, cast_inputs: DType, /, *, lib: Library | None = None) -> None:
    """`CustomOp.register_autocast` of an operator, or of the one with this name."""
    del lib
    lookup(op).register_autocast(device_type, cast_inputs)


def register_torch_dispatch(
    op: Arg, torch_dispatch_class: type, func: AnyCallable | None = None, /, *, lib: Library | None = None
) -> AnyCallable:
    """Raises `NotImplementedError`, as `CustomOp.register_torch_dispatch` does."""
    del lib
    return lookup(op).register_torch_dispatch(torch_dispatch_class, func)


# --- what is not there --------------------------------------------------------------------------------------------


class FakeContext:
    """What `get_ctx` returns within a fake."""

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> NoReturn:
        """Raises `NotImplementedError`: XLA's programs have results of known sizes."""
        raise UnsupportedError(
            "new_dynamic_size: the sizes of an operator's results must follow from those of its arguments, since XLA's "
            "programs have known sizes; return a result of the largest size, and the number of elements that count"
        )

    create_unbacked_symint = new_dynamic_size


def get_ctx() -> FakeContext:
    """In a fake, the object that would give sizes which depend on elements; it refuses to."""
    return FakeContext()


def get_kernel(op: Arg, dispatch_key: str) -> AnyCallable:
    """The operator as a function of the dispatch keys, which are ignored, and its arguments."""
    operator = lookup(op)
    if dispatch_key not in _BODIES:
        raise RegistrationError(f"no kernel of {operator!r} is found for the dispatch key {dispatch_key!r}")
    return lambda keys, *args, **kwargs: operator(*args, **kwargs)


def triton_op(
    name: str, fn: AnyCallable | None = None, /, *, mutates_args: object, schema: str | None = None
) -> NoReturn:
    """Raises `NotImplementedError`: Triton's kernels are not launched here."""
    raise UnsupportedError(
        f"triton_op({name!r}): there are no Triton kernels here. Write the kernel with jax's Pallas, and make it an "
        "operator by custom_op: a body over jax.Array parameters"
    )


def wrap_triton(triton_kernel: object, /) -> NoReturn:
    """Raises `NotImplementedError`, as `triton_op` does."""
    raise UnsupportedError(
        f"wrap_triton({triton_kernel!r}): there are no Triton kernels here. Write the kernel with jax's Pallas, and "
        "make it an operator by custom_op: a body over jax.Array parameters"
    )
