"""Backward passes over tensors: `backward` and `grad`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from weakref import WeakValueDictionary

from weft._autograd import engine
from weft._base.forks import renew_in_forks
from weft._base.overriding import Overridden
from weft._base.site import UNTIL_USER, end_at_user, warn_user
from weft._base.state import ambient, using
from weft._base.types import Arg
from weft._lazy.aval import Aval, in_memory, owned
from weft._lazy.role import Leaf, Retained
from weft._lazy.runtime import filled_array as _filled
from weft._lazy.value import Value
from weft._tensor.cotangents import as_cotangent, as_gradient_of
from weft._tensor.examples import Examples, backward_inside
from weft._tensor.kind_names import advice, kind_and_advice, kind_of
from weft._tensor.leaf import leaf
from weft._tensor.node import GradientEdge, Location
from weft._tensor.overriding import dispatched
from weft._tensor.tensor import Tensor, operand, wrap
from weft.errors import ArgumentError, GradientError, ShapeError, ValueRangeError

# no cell: only texts and reports depend on it
without_derivative: WeakValueDictionary[str, Arg] = WeakValueDictionary()
"""Loaded programs that were called where they needed a derivative and have none, by name, while they are alive."""


Ends = Tensor | GradientEdge | Sequence[Tensor | GradientEdge]
"""Where backward passes begin or end."""


def backward(
    tensors: Ends,
    grad_tensors: object = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Ends | None = None,
) -> None:
    """Add the gradients of `tensors` to `.grad` of the leaves that they depend on, or only of `inputs`.

    `grad_tensors` are the cotangents; for a tensor of one element the default is one. The graph is freed unless
    `retain_graph`, which defaults to `create_graph`.
    """
    if ambient().context.transform is not None:
        raise backward_inside()
    roots = _roots(_as_list(tensors), grad_tensors)
    keep = create_graph if retain_graph is None else retain_graph

    def deliver(role: Leaf, grad: Value) -> None:
        accumulate(role, grad, create_graph)

    if inputs is None:
        engine.backward(roots, deliver=deliver, retain_graph=keep, create_graph=create_graph)
        return
    wanted = _as_list(inputs)
    if not wanted:
        raise GradientError("`inputs` argument to `backward()` cannot be empty.")
    for tensor in wanted:
        if isinstance(tensor, Tensor) and not tensor.requires_grad:
            raise GradientError("can't retain_grad on Tensor that has requires_grad=False")
        if isinstance(tensor, GradientEdge) and not isinstance(tensor.place.role, Leaf):
            raise GradientError("backward(inputs=...): the edge of a tensor that is no leaf has no .grad; use grad()")
    targets = [_place_of(x) for x in wanted]
    grads = engine.backward(roots, deliver=deliver, targets=targets, retain_graph=keep, create_graph=create_graph)
    for tensor, value in zip(wanted, grads, strict=True):
        if value is not None and isinstance(tensor, Tensor) and not tensor.is_leaf:
            if tensor._role is None:
                tensor._role = Retained()
            accumulate(tensor._role, value, create_graph)


def backward_of(
    self: Tensor,
    gradient: object = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Ends | None = None,
) -> None:
    """`autograd.backward` from this tensor; `gradient` is its cotangent, for one element by default one."""
    try:
        backward(self, gradient, retain_graph, create_graph, inputs)
    except Overridden as signal:
        return dispatched(signal)
    except UNTIL_USER as error:
        end_at_user(error)
        raise


def grad(
    outputs: Ends,
    inputs: Ends,
    grad_outputs: object = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`, as a tuple; nothing is added to `.grad`.

    An input on which the outputs do not depend is an error; with `allow_unused` its gradient is None, and with
    `materialize_grads` it is zero. With `is_grads_batched`, the first dim of `grad_outputs` and of the gradients counts
    cotangents, whose backward passes run together. `only_inputs` is ignored.
    """
    if not only_inputs:
        warn_user(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
        )
    if is_grads_batched:
        return _batched_grads(
            outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads
        )
    if materialize_grads and allow_unused is False:
        raise ValueRangeError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    wanted = _as_list(inputs)
    if not wanted:
        raise GradientError("`inputs` argument to `grad()` cannot be empty.")
    roots = _roots(_as_list(outputs), grad_outputs)
    for tensor in wanted:
        if isinstance(tensor, Tensor) and not tensor.requires_grad:
            raise GradientError("One of the differentiated Tensors does not require grad")
    keep = create_graph if retain_graph is None else retain_graph
    targets = [_place_of(x) for x in wanted]
    avals = [_aval_of(x) for x in wanted]
    grads = engine.backward(roots, deliver=None, targets=targets, retain_graph=keep, create_graph=create_graph)
    result: list[Tensor | None] = []
    for at, (aval, value) in enumerate(zip(avals, grads, strict=True)):
        if value is not None:
            result.append(wrap(with_names_of(aval, value, create_graph)))
        elif materialize_grads:
            if isinstance(wanted[at], GradientEdge):
                raise GradientError("materialize_grads cannot be used when the given input is a GradientEdge")
            result.append(wrap(leaf(aval, _filled(aval, 0))))
        elif allow_unused:
            result.append(None)
        else:
            raise GradientError(
                f"The differentiated Tensor at index {at} appears to not have been used in the graph. Set "
                "allow_unused=True if this is the desired behavior."
            )
    return tuple(result)


def _batched_grads(outputs: Arg, inputs: Arg, grad_outputs: object, *options: bool | None) -> tuple[Tensor | None, ...]:
    """The gradients for several cotangents of each output, along a new first dim."""
    ends: list[Arg] = _as_list(outputs)
    if any(isinstance(output, GradientEdge) for output in ends):
        raise GradientError("Batched grads are not supported with GradientEdge")
    cotangents = _cotangents_of(ends, grad_outputs)
    for at, (cotangent, output) in enumerate(zip(cotangents, ends, strict=True)):
        if cotangent is None:
            _one(_aval_of(output))  # what is wrong with the output comes first
        if not isinstance(cotangent, Tensor) or not cotangent.ndim:
            kind = "a Tensor of no dims" if isinstance(cotangent, Tensor) else kind_of(cotangent)
            raise ValueRangeError(
                f"is_grads_batched=True: expected a Tensor as grad_output[{at}], whose first dim counts cotangents, "
                f"got {kind}{advice(cotangent)}"
            )
        if cotangent.shape[1:] != output.shape:
            raise ShapeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                "dimension. The sizes of the remaining dimensions are expected to match the shape of corresponding "
                f"output, but a mismatch was detected: grad_output[{at}] has a shape of {cotangent.shape} and "
                f"output[{at}] has a shape of {output.shape}. If you only want some tensors in `grad_output` to be "
                "considered batched, consider using vmap."
            )
    sizes = [len(cotangent) for cotangent in cotangents]
    if len(set(sizes)) > 1:
        raise ValueRangeError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    retain_graph, create_graph, allow_unused, materialize_grads = options
    examples = Examples(sizes[0], "error")
    gradients = examples.run(
        lambda *seeds: grad(
            outputs,
            inputs,
            seeds,
            retain_graph,
            bool(create_graph),
            allow_unused=allow_unused,
            materialize_grads=bool(materialize_grads),
        ),
        [examples.example_of(x) for x in cotangents],
    )
    return tuple([None if x is None else examples.for_each(x) for x in gradients])


_accumulating = threading.Lock()  # several threads may run backward into one leaf
renew_in_forks(globals(), "_accumulating")


def accumulate(role: Leaf, grad: Value, create_graph: bool) -> None:
    """Add a gradient to that of a leaf, then call its post-accumulate hooks."""
    owner = None if role.owner is None else role.owner()
    value = None if owner is None else owner._value
    shape = grad.aval.shape if value is None else value.aval.shape
    if shape != grad.aval.shape:
        raise GradientError(
            f"backward() returned an invalid gradient for a leaf - got {list(grad.aval.shape)} but expected shape "
            f"compatible with {list(shape)}; was its .data replaced since the graph was recorded?"
        )
    if value is not None:
        grad = with_names_of(value.aval, grad, create_graph)
    capture = ambient().capture
    if capture is not None:
        capture.writes_grad(role, reads=True)
    with _accumulating:
        held = role.grad
        if held is None:
            role.grad = wrap(grad)
        elif create_graph or held._read().aval.owner is not grad.aval.owner:  # one may be sparse
            role.grad = held + wrap(grad)
        else:
            with using(grad=False):
                held += wrap(grad)
    if role.post_hooks and role.owner is not None:
        owner = role.owner()
        if owner is not None:
            for hook in list(role.post_hooks.values()):
                if hook(owner) is not None:
                    raise GradientError("Tensor post accumulate grad hooks should return None.")


def with_names_of(aval: Aval, grad: Value, create_graph: bool) -> Value:
    """A gradient with the names and the owner of what it belongs to."""
    if aval.names == grad.aval.names and aval.owner is grad.aval.owner:
        return grad
    with using(grad=create_graph):
        return as_gradient_of(aval, grad)


def _place_of(x: Tensor | GradientEdge) -> Location:
    return x._read() if isinstance(x, Tensor) else x.place


def _aval_of(x: Tensor | GradientEdge) -> Aval:
    return x._read().aval if isinstance(x, Tensor) else x.aval


def _as_list(tensors: Arg) -> list[Tensor | GradientEdge]:
    items = [tensors] if isinstance(tensors, (Tensor, GradientEdge)) else list(tensors)
    for tensor in items:
        if not isinstance(tensor, (Tensor, GradientEdge)):
            raise ArgumentError(f"expected Tensors or a sequence of Tensors, got {kind_and_advice(tensor)}")
    return items


def _roots(outputs: list[Tensor | GradientEdge], cotangents: object) -> list[tuple[Location, Value]]:
    pairs = zip(outputs, _cotangents_of(outputs, cotangents), strict=True)
    seeds = [_seed(at, tensor, cotangent) for at, (tensor, cotangent) in enumerate(pairs)]
    for at, tensor in enumerate(outputs):
        if isinstance(tensor, Tensor) and not tensor.requires_grad:
            raise GradientError(f"element {at} of tensors does not require grad and does not have a grad_fn{_hint()}")
    return [(_place_of(tensor), seed) for tensor, seed in zip(outputs, seeds, strict=True) if seed is not None]


def _cotangents_of(outputs: list[Tensor | GradientEdge], cotangents: Arg) -> list[Arg]:
    """The cotangent that a user gives for each output, or None; as in PyTorch, further ones are ignored."""
    if cotangents is None:
        return [None] * len(outputs)
    gradients = [cotangents] if isinstance(cotangents, Tensor) else list(cotangents)
    if len(gradients) < len(outputs):
        raise GradientError(f"got {len(outputs)} tensors and {len(gradients)} gradients")
    return gradients[: len(outputs)]


def _hint() -> str:
    names = ", ".join(sorted(without_derivative))
    return names and (
        f"; no gradients flow through {names}, as the file that it was loaded from does not hold its derivative: write "
        "it with weft.export.save(program, f, derivatives=1)"
    )


def _seed(at: int, tensor: Tensor | GradientEdge, cotangent: object) -> Value | None:
    """The cotangent of an output: the given one, in the output's type, or 1; None for an output outside the tape."""
    if cotangent is not None and not isinstance(cotangent, Tensor):
        kind = f"{kind_and_advice(cotangent)}"
        raise ArgumentError(f"gradients can be either Tensors or None, but got {kind}")
    aval = _aval_of(tensor)
    if cotangent is None:
        return None if isinstance(tensor, Tensor) and not tensor.requires_grad else _one(aval)
    if cotangent.shape != aval.size:
        raise ShapeError(
            f"Mismatch in shape: grad_output[{at}] has a shape of {cotangent.shape} and output[{at}] has a shape of "
            f"{aval.size}."
        )
    if cotangent.is_complex() is not aval.dtype.is_complex:
        raise GradientError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
            f"grad_output[{at}] has a dtype of {cotangent.dtype} and output[{at}] has a dtype of {aval.dtype}."
        )
    seed = operand(cotangent if cotangent.dtype is aval.dtype else cotangent.to(aval.dtype))
    return as_cotangent(seed, aval, f"grad_output[{at}]")


def _one(aval: Aval) -> Value:
    if prod(aval.size) != 1:
        raise GradientError(
            f"grad can be implicitly created only for scalar outputs, this one has shape {list(aval.size)}; "
            "give `gradient=` or reduce it first"
        )
    if aval.dtype.is_complex:
        raise GradientError(f"grad can be implicitly created only for real scalar outputs but got {aval.dtype}")
    plain = in_memory(owned(aval, None), False)
    seed = leaf(plain, _filled(plain, 1))
    if aval.owner is None:
        return seed
    distributed = aval.owner.distributed
    return aval.owner.to_cotangent(seed, "the gradient 1") if distributed is None else distributed.seed(seed)


def clear_grad(tensor: Tensor, set_to_none: bool) -> None:
    """Remove a tensor's gradient, or detach it and set it to zero."""
    if set_to_none:  # without reading it, so that a captured step does not depend on whether there was one
        tensor.grad = None
        return
    grad = tensor.grad
    if grad is None:
        return
    if grad.is_leaf:
        grad.requires_grad_(False)
    else:
        grad.detach_()
    grad.zero_()
