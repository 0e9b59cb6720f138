"""The same array as a value of another type: how a value gets an owner, or loses it."""

from __future__ import annotations

import jax

from weft._base.state import ambient
from weft._lazy.aval import AnyOwner, Aval, in_memory, owned, plain_type
from weft._lazy.external import taken_in
from weft._lazy.record import record
from weft._lazy.signature import Signature
from weft._lazy.value import Value

# no cell: a cache, keyed by all that its entries depend on
_signatures: dict[tuple[Aval, Aval], Signature] = {}


def retyped(value: Value, aval: Aval) -> Value:
    """The same array as a value of another type, which differs in names or owner. Gradients pass unchanged."""
    if value.aval is aval:
        return value
    value, aval = taken_in(value), in_memory(aval, False)
    key = (plain_type(value.aval), aval)
    signature = _signatures.get(key)
    if signature is None:
        own = Signature("retype", _itself, key[:1], device=aval.device, rounds=False)
        signature = _signatures.setdefault(key, own.with_types([aval]))
    return record(signature, (value,), ambient())[0]


def with_owner(value: Value, owner: AnyOwner | None) -> Value:
    """The same array as a value of another owner, or of none. Gradients pass unchanged."""
    return retyped(value, owned(value.aval, owner))


def _itself(array: jax.Array) -> tuple[jax.Array]:
    return (array,)
