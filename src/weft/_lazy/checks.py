"""Checks of input values. If a check fails, the results of its application are invalid.

For example, an index in a tensor may be out of range, or a matrix may be singular. If the values are in memory, the
call itself raises. Otherwise the check is recorded as one more operator, which gives a code. Until the code is read,
every value computed from the application is in doubt; if the code is bad, every read of such a value raises.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from weft._base.pending import Pending
from weft._base.site import user_site
from weft._base.state import Ambient
from weft._base.types import Arg
from weft._lazy.general import with_letters
from weft._lazy.interpreted import run_of
from weft._lazy.native import native
from weft._lazy.signature import Output, Signature, structs_of
from weft._lazy.trace import Trace, restricted, traced, with_unread
from weft._lazy.value import Doubt, RecordedCheck, Value, error_of, first_failure, recorded


def begin(signature: Signature, inputs: tuple[Value, ...], ambient: Ambient) -> Doubt:
    """Check an application that is about to be recorded: now if the values are in memory, and also in its program.

    The program always includes the check, so that it does not depend on what is in memory. A check that has passed
    exists as long as its application; any other check runs even if nobody reads the application's results.
    """
    recipe = _recipe_of(signature)
    at_hand = None if ambient.pending.branch else _codes_at_hand(signature, recipe, inputs)
    failure = None if at_hand is None else first_failure(signature, at_hand)
    if failure is not None:
        raise error_of(signature, failure, "")
    code = recorded(recipe.output, tuple([inputs[i] for i in recipe.inputs]), ambient)
    check = RecordedCheck(code, signature, passed=at_hand is not None)
    if not check.passed:
        ambient.pending.checks.append(check)
    doubt = Doubt(check)
    check.doubt = weakref.ref(doubt)
    return doubt


if native is not None:
    native.bind(user_site=user_site)


class _Recipe(NamedTuple):
    """A precondition as a signature: the number of its output with the codes, and the positions of its inputs."""

    output: Output
    inputs: tuple[int, ...]


def _recipe_of(signature: Signature) -> _Recipe:
    requirement = signature.requirement
    assert requirement is not None, "only called where there is one"
    if requirement.check is None:
        precondition = requirement.precondition
        assert precondition is not None, "only called where there is one"
        structs = structs_of(signature.avals)
        trace = _traced_for_all_sizes(signature) or _traced(precondition.codes, structs)
        read = tuple(trace.inputs)

        def codes(*arrays: jax.Array) -> tuple[jax.Array]:
            return (jnp.stack(precondition.codes(*with_unread(arrays, structs, read))),)

        device = signature.outputs[0].aval.device
        avals = tuple([signature.avals[i] for i in read])
        checker = Signature(
            f"check of {signature.name}", codes, avals, device=device, differentiable=False, trace=trace
        )
        requirement.check = _Recipe(checker.outputs[0], read)
    return requirement.check


def _traced(codes: Callable[..., list[Arg]], structs: Sequence[jax.ShapeDtypeStruct]) -> Trace:
    return restricted(traced(lambda *arrays: jnp.stack(codes(*arrays)), structs), [0])


def _traced_for_all_sizes(signature: Signature) -> Trace | None:
    """The trace of the codes with symbolic sizes; None if that is impossible."""
    if signature.general is None:
        return None
    general, sizes = signature.general
    if not general.checked and general.precondition is not None:
        general.check = with_letters(partial(_traced, general.precondition.codes, general.structs))
        general.checked = True
    return None if general.check is None else general.check.with_sizes(sizes)


def _codes_at_hand(signature: Signature, recipe: _Recipe, inputs: tuple[Value, ...]) -> list[int] | None:
    """The codes, if everything that they depend on is in memory."""
    precondition = signature.precondition
    assert precondition is not None, "only called where there is one"
    if not precondition.on_host:
        return None
    arrays: dict[int, np.ndarray] = {}
    for i in recipe.inputs:
        array = _at_hand(inputs[i])
        if array is None:
            return None
        arrays[i] = array
    if native is not None:  # which has the codes in a microsecond, where functions of NumPy take 25
        (codes,) = run_of(recipe.output.signature)([*arrays.values()])
        return codes.tolist()
    full = [
        arrays[i] if i in arrays else np.broadcast_to(np.zeros((), a.dtype.numpy), a.shape)
        for i, a in enumerate(signature.avals)
    ]
    return [int(code) for code in precondition.codes(*full)]


def _at_hand(value: Value) -> np.ndarray | None:
    """The elements of a value that are in this process's memory, or being computed there; else None."""
    # Waits if it is being computed, so that what is recorded does not depend on time.
    return value.at_hand() if value.aval.weak or value.aval.device.type == "cpu" else None


def report(pending: Pending, most: int = 0) -> None:
    """Raise the failures of this thread's checks that no living value can raise. At most `most` checks stay unread.

    Only checks that were computed by the last flush are looked at. A loop that reads a number for each thousand checks
    it records would otherwise pay half a millisecond for each number.
    """
    if len(pending.unread) <= most:
        return
    unread, pending.unread = pending.unread, []
    alive: list[RecordedCheck] = []
    try:
        while len(unread) > most:
            check = unread[0]
            check.wait()
            del unread[0]
            if check.failure is None or check.reported:
                continue
            if check.doubt is None or check.doubt() is None:
                raise check.error()
            alive.append(check)
    finally:
        pending.unread[:0] = [*alive, *unread]


def note_computed(pending: Pending) -> None:
    """Let `report` read the checks of a list whose codes have been computed."""
    computed = [check for check in pending.checks if not check.is_pending]
    if computed:
        pending.unread += computed
        pending.checks = [check for check in pending.checks if check.is_pending]


def checks_of(region: Pending) -> Iterator[RecordedCheck]:
    """The checks of a region's applications."""
    for value in region:
        if value.origin.signature.requirement is not None and value.doubt is not None:
            yield value.doubt.check
