"""Operators of compiled libraries that this package has itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from weft._base.state import ambient
from weft._base.types import AnyCallable, Arg, Result
from weft._interop.operators import publish
from weft._tensor.codegen import function_of
from weft._tensor.overriding import flat, handle, overriding_among
from weft.errors import RegistrationError
from weft.ops._table import TABLE


class ProvidedOperator:
    """An operator of a library, as a function over tensors; `schema` is the library's.

    It is whole. So libraries register in vain what they would for their own: types of results, derivatives, casts.
    """

    def __init__(self, name: str, function: AnyCallable, schema: str) -> None:
        self.schema = schema
        self.public: Any = self
        self._name, self._function = name, function

    def __repr__(self) -> str:
        return f"<ProvidedOperator({self._name})>"

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """Record the operator, or compute it where its result's size depends on elements."""
        relevant = list(flat(args, kwargs))
        if ambient().overrides.mode is not None or overriding_among(relevant):
            return handle(self.public, relevant, args, kwargs)
        return self._function(*args, **kwargs)

    def _has_it(self, *args: Arg, **kwargs: Arg) -> Any:
        """Leave what is registered aside; used as a decorator, leave the function as it is."""
        del kwargs
        return args[-1] if args and callable(args[-1]) else lambda function: function

    register_fake = register_autograd = register_vmap = register_autocast = set_body_for_gradients = _has_it

    def set_body(self, kind: str, body: AnyCallable) -> NoReturn:
        """Raises `RuntimeError`: there is a body."""
        raise RegistrationError(
            f"{self._name}: it is an operator of Weft's own and takes no other kernel, got {body!r}"
        )

    def register_kernel(self, device_types: Arg, fn: AnyCallable | None = None, /) -> NoReturn:
        """Raises `RuntimeError`, as `set_body` does."""
        self.set_body(str(device_types), fn or self._function)


def provided(schema: str) -> Callable[[AnyCallable], AnyCallable]:
    """Publish the decorated function under the name in the schema."""
    name = schema.partition("(")[0]

    def make(function: AnyCallable) -> AnyCallable:
        publish(ProvidedOperator(name, function, schema), name)
        return function

    return make


def provide_rows(*schemas: str) -> None:
    """Publish the rows that have the names in the schemas."""
    for schema in schemas:
        provided(schema)(function_of(TABLE[schema.partition("(")[0]]))
