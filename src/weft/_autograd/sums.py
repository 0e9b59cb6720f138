"""Sums of gradients, where several arrive at one place."""

from __future__ import annotations

from weft._base.state import Ambient
from weft._lazy.call import ONE
from weft._lazy.infer import Call, call_of, signature_of
from weft._lazy.native import native
from weft._lazy.record import record
from weft._lazy.value import Value
from weft.ops._table import TABLE

# no cell: found when it is first needed, and the same ever after
_ADD: list[Call] = []


def add_values(a: Value, b: Value, state: Ambient) -> Value:
    """The sum of two values of one type."""
    if not _ADD:
        op = TABLE["add"]
        _ADD.append(call_of(op, tuple(p.default if i > 1 else ONE for i, p in enumerate(op.params))))
    call, avals = _ADD[0], (a.aval, b.aval)
    signature = call.signatures.get(avals)
    if signature is None:
        for aval in avals:
            if aval.owner is not None:  # a sparse gradient
                return aval.owner.apply(call, (a, b))[0]
        signature = signature_of(call, avals)
    return record(signature, (a, b), state)[0]


if native is not None:
    native.bind(add_values=add_values)
