"""Kernels: bodies of users' operators, as bodies of rows.

A body is a function of jax arrays, or a function of tensors, which is traced into one. A body that reads values (such
as NumPy code) runs on the host while the program waits for it; a fake gives the types of its results.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import jax
import numpy as np

from weft._base.types import Arg, Args, Kwargs, PyTree, Result
from weft._interop.structure import Flat, arrays_in
from weft._interop.trace import traced
from weft._lazy.callbacks import called_back
from weft._tensor.autocast import not_cast
from weft._tensor.codegen import op
from weft._tensor.convert import from_host
from weft._tensor.tensor import Tensor
from weft.errors import ArgumentError, CompileError, GradientError, NeedsValueError, ShapeError, TransformError


@dataclass(slots=True)
class Declaration:
    """What all kernels of an operator share.

    name       of the operator
    signature  its parameters
    mutates    the names of the tensors that it writes to
    fake       a function of its arguments that gives empty tensors with the types of its results, or None
    batch      the rule of `register_vmap`, or None
    single     whether it returns one result and not a tuple; known when a body has run
    """

    name: str
    signature: inspect.Signature
    mutates: tuple[str, ...]
    fake: Callable[..., Any] | None = None
    batch: Callable[..., Any] | None = None
    single: bool = True


class BatchInfo:
    """What the rule of `register_vmap` gets: how many examples there are. Random draws differ between them."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.randomness = "different"


class Kernel:
    """One body of an operator; call it with arrays."""

    def __init__(self, declaration: Declaration, body: Callable[..., Any], *, of_tensors: bool = True) -> None:
        self.declaration = declaration
        self.body = body
        self._of_tensors = of_tensors
        self._reads_values = False  # once this has been found

    def __call__(self, *args: Arg, **kwargs: Arg) -> Result:
        """The results for jax arrays: one or several, and after them the new values of what it writes to."""
        # Without a rule, `vmap` goes through what the body records.
        if self.declaration.batch is None:
            return self._computed(args, kwargs)
        flat = arrays_in((args, kwargs))

        @jax.custom_batching.custom_vmap
        def call(*arrays: jax.Array) -> PyTree:
            args, kwargs = flat.rebuilt(arrays)
            return self._computed(args, kwargs)

        @call.def_vmap
        def batched(size: int, is_batched: list[bool], *arrays: jax.Array) -> PyTree:
            return self._batched(size, is_batched, Flat(list(arrays), flat.rest, flat.tree))

        return call(*flat.inputs)

    def _computed(self, args: Args, kwargs: Kwargs) -> PyTree:
        if not self._of_tensors:
            return self.body(*args, **kwargs)
        flat = arrays_in((args, kwargs))
        if not self._reads_values:
            try:
                with not_cast():
                    return tuple(traced(partial(self._run, flat), flat.inputs, self.declaration.name))
            except NeedsValueError:
                self._reads_values = True
        return self._on_host(flat)

    def _run(self, flat: Flat, tensors: list[Tensor]) -> list[Tensor]:
        """The body on tensors: its results, then the new values of what it writes to."""
        name = self.declaration.name
        args, kwargs = flat.rebuilt(tensors)
        bound = self.declaration.signature.bind(*args, **kwargs).arguments
        written = [bound[name] for name in self.declaration.mutates]
        before = [tensor._version for tensor in tensors]
        result = self.body(*args, **kwargs)
        for tensor, old in zip(tensors, before, strict=True):
            if tensor._version != old and not any(tensor is x for x in written):
                parameter = next((key for key, x in bound.items() if x is tensor), "a list")
                raise CompileError(f"{name}: it writes to {parameter!r}, which mutates_args does not name")
        self.declaration.single = not isinstance(result, (tuple, list))
        return [*self._outputs(result), *written]

    def _outputs(self, result: PyTree) -> list[Tensor]:
        """The tensors that the body or its fake returned; `TypeError` if it returned anything else."""
        results = [] if result is None else list(result) if isinstance(result, (tuple, list)) else [result]
        for x in results:
            if not isinstance(x, Tensor):
                raise ArgumentError(
                    f"{self.declaration.name}: an operator gives tensors, and it returned a {type(x).__name__}"
                )
        return results

    def _on_host(self, flat: Flat) -> tuple[jax.Array, ...]:
        name, fake = self.declaration.name, self.declaration.fake
        if fake is None:
            raise CompileError(
                f"{name}: its body looks at values, so it runs on the host, and the types of its results must be "
                "known before; register_fake a function that gives empty tensors of these types"
            )

        def types_of(tensors: list[Tensor]) -> list[Tensor]:
            args, kwargs = flat.rebuilt(tensors)
            bound = self.declaration.signature.bind(*args, **kwargs).arguments
            return [*self._outputs(fake(*args, **kwargs)), *(bound[written] for written in self.declaration.mutates)]

        # XLA has to know what comes back before the host computes it.
        structs = jax.eval_shape(lambda *a: tuple(traced(types_of, a, f"the fake of {name}")), *flat.inputs)

        @called_back
        def host(*arrays: jax.Array) -> tuple[np.ndarray, ...]:
            results = [tensor._host() for tensor in self._run(flat, [from_host(np.asarray(a)) for a in arrays])]
            for at, (array, struct) in enumerate(zip(results, structs, strict=True)):
                if (array.shape, array.dtype) != (struct.shape, struct.dtype):
                    raise ShapeError(
                        f"{name}: result {at} is {array.dtype}{list(array.shape)}, and its fake says "
                        f"{struct.dtype}{list(struct.shape)}"
                    )
            return tuple(results)

        def refuse(*_: object) -> NoReturn:
            raise GradientError(
                f"Trying to backward through {name} but no autograd formula was registered. Please use "
                "register_autograd to add one."
            )

        @jax.custom_vjp
        def call(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            return jax.pure_callback(host, structs, *arrays, vmap_method="sequential")

        # Without a formula the backward pass raises when it comes here, as in PyTorch, and not when the call is
        # recorded.
        call.defvjp(
            lambda *arrays: (call(*arrays), arrays),
            lambda arrays, _: jax.pure_callback(refuse, arrays),
        )
        return call(*flat.inputs)

    def _batched(self, size: int, is_batched: list[bool], flat: Flat) -> PyTree:
        """The results for several examples, by the rule of `register_vmap`, and whether each differs between them."""
        rule, name = self.declaration.batch, self.declaration.name
        assert rule is not None, "there is a rule"
        dims = flat.marked([0 if batched else None for batched in is_batched])[0]
        differ: list[bool] = []

        def run(tensors: list[Tensor]) -> list[Tensor]:
            args, kwargs = flat.rebuilt(tensors)
            answer = rule(BatchInfo(size), dims, *args, **kwargs)
            if not isinstance(answer, tuple) or len(answer) != 2:
                raise TransformError(
                    f"{name}: the rule of register_vmap must return (output, out_dims), got a {type(answer).__name__}"
                )
            output, out_dims = answer
            outputs = self._outputs(output)
            places = list(out_dims) if isinstance(out_dims, (tuple, list)) else [out_dims] * len(outputs)
            if len(places) != len(outputs):
                raise TransformError(
                    f"{name}: the rule of register_vmap returned {len(outputs)} outputs and {len(places)} out_dims"
                )
            differ.extend(place is not None for place in places)
            return [x if d is None else op.movedim(x, d, 0) for x, d in zip(outputs, places, strict=True)]

        with not_cast():
            arrays = tuple(traced(run, flat.inputs, f"the vmap rule of {name}"))
        return arrays, tuple(differ)
