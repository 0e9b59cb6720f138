"""`opcheck`: whether an operator does what its registrations say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

from weft._base.types import Args, Kwargs, PyTree
from weft._interop.custom import CustomOp
from weft._interop.operators import lookup
from weft._interop.structure import tensors_in
from weft._interop.trace import traced
from weft._tensor.alias import owner_of
from weft._tensor.compile import compile
from weft._tensor.gradients import grad
from weft._tensor.tensor import Tensor
from weft.errors import MismatchError, ValueRangeError
from weft.ops._kinds import Kind
from weft.testing import assert_close

Check = Callable[[CustomOp, tuple[Any, ...], dict[str, Any], float | None, float | None], None]


def opcheck(
    op: str | CustomOp,
    args: Args,
    kwargs: Kwargs | None = None,
    *,
    test_utils: str | Sequence[str] = (
        "test_schema",
        "test_autograd_registration",
        "test_faketensor",
        "test_aot_dispatch_dynamic",
    ),
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Call an operator, check its registrations, and return "SUCCESS" or the error for each check.

    - `test_schema`: it writes to what the schema names and to nothing else, and no result shares an argument's elements
    - `test_autograd_registration`: tensors that require gradients get some
    - `test_faketensor`: the fake gives the types of the results
    - `test_aot_dispatch_dynamic` (or `_static`): within a compiled function it gives the same

    `raise_exception` raises the first error. What gradients are is not checked: use `autograd.gradcheck`.
    """
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = sorted({*names} - {*_CHECKS})
    if unknown:
        raise ValueRangeError(f"opcheck: unknown tests {unknown}; there are {', '.join(_CHECKS)}")
    overloads = getattr(op, "overloads", None)
    operator = lookup(getattr(op, overloads()[0]) if overloads else op)
    outcome: dict[str, Any] = {}
    for name in names:
        try:
            _CHECKS[name](operator, args, kwargs or {}, atol, rtol)
            outcome[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise
            outcome[name] = error
    return outcome


def _copied(args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs, list[Tensor]]:
    """Arguments with copies of the tensors, which are leaves where these require gradients; and these copies."""
    flat = tensors_in((args, kwargs))
    copies = [x.detach().clone().requires_grad_(x.requires_grad) for x in flat.inputs]
    own_args, own_kwargs = flat.rebuilt(copies)
    return own_args, own_kwargs, copies


def _outputs(result: PyTree) -> list[Tensor]:
    return tensors_in(result).inputs


def _check_schema(operator: CustomOp, args: Args, kwargs: Kwargs, *_: object) -> None:
    own_args, own_kwargs, tensors = _copied(args, kwargs)
    tensors = [x.requires_grad_(False) for x in tensors]
    before = [x.clone() for x in tensors]
    result = operator(*own_args, **own_kwargs)
    bound = operator._declaration.signature.bind(*own_args, **own_kwargs).arguments
    written = [bound[name] for name in operator._declaration.mutates]
    for tensor, old in zip(tensors, before, strict=True):
        if not any(tensor is x for x in written):
            assert_close(tensor, old, equal_nan=True, msg=f"{operator!r} writes to an argument that it does not name")
    owners = [owner_of(x) for x in tensors]
    for output in _outputs(result):
        if any(owner_of(output) is owner for owner in owners):
            raise MismatchError(f"{operator!r} returns a tensor that shares the elements of an argument; clone it")


def _check_gradients(operator: CustomOp, args: Args, kwargs: Kwargs, *_: object) -> None:
    own_args, own_kwargs, tensors = _copied(args, kwargs)
    leaves = [x for x in tensors if x.requires_grad]
    if operator._declaration.mutates or not leaves:
        return
    outputs = [y for y in _outputs(operator(*own_args, **own_kwargs)) if y.dtype.is_differentiable]
    if any(y.requires_grad for y in outputs):
        sums: Any = sum((y.sum() for y in outputs if y.requires_grad), start=0)
        for x in grad(sums.abs() if sums.is_complex() else sums, leaves, allow_unused=True):
            if x is not None:
                x.tolist()  # a derivative that is not there raises when it is computed


def _check_fake(operator: CustomOp, args: Any, kwargs: Any, *_: Any) -> None:
    fake = operator._declaration.fake
    if fake is None:
        return
    # Copies, as the operator may write to its arguments, and other checks use them, too.
    own_args, own_kwargs, tensors = _copied(args, kwargs)
    flat = tensors_in((own_args, own_kwargs))

    def types_of(tensors: list[Tensor]) -> list[Tensor]:
        fake_args, fake_kwargs = flat.rebuilt(tensors)
        return _outputs(fake(*fake_args, **fake_kwargs))

    arrays = [x.detach()._array() for x in tensors]
    wanted = jax.eval_shape(lambda *a: tuple(traced(types_of, a, f"the fake of {operator!r}")), *arrays)
    results = [x.detach()._array() for x in _outputs(operator(*own_args, **own_kwargs))]
    declared = [f"{x.dtype}{list(x.shape)}" for x in wanted]
    real = [f"{x.dtype}{list(x.shape)}" for x in results]
    if declared != real:
        raise MismatchError(f"{operator!r} gives {', '.join(real)}, and its fake says {', '.join(declared)}")


def _check_compiled(operator: CustomOp, args: Args, kwargs: Kwargs, atol: float | None, rtol: float | None) -> None:
    if any(p.kind is Kind.ARRAY for p in operator._params):
        own_args, own_kwargs, tensors = _copied(args, kwargs)
        whole = _outputs(operator(*own_args, **own_kwargs))
        args, kwargs, copies = _copied(args, kwargs)
        function = compile(lambda: operator(*args, **kwargs))
        assert_close(_outputs(function()), whole, atol=atol, rtol=rtol, equal_nan=True)
        assert_close(copies, tensors, atol=atol, rtol=rtol, equal_nan=True)


_CHECKS: dict[str, Check] = {
    "test_schema": _check_schema,
    "test_autograd_registration": _check_gradients,
    "test_faketensor": _check_fake,
    "test_aot_dispatch_dynamic": _check_compiled,
    "test_aot_dispatch_static": _check_compiled,
}
