"""Nodes and edges of the graph, and hooks on them. Expected orders and texts are PyTorch's."""

from __future__ import annotations

import gc
import weakref

import pytest

import weft
from weft.autograd import backward, grad
from weft.autograd.graph import (
    GradientEdge,
    Node,
    get_gradient_edge,
    increment_version,
    register_multi_grad_hook,
    set_warn_on_accumulate_grad_stream_mismatch,
)


@pytest.fixture
def x():
    return weft.tensor([1.0, 2.0], requires_grad=True)


def names(node):
    return [None if each is None else type(each).__name__ for each, _ in node.next_functions]


# --- nodes ---


def test_a_node_is_one_object(x):
    y = (x * 2).exp()
    node = y.grad_fn
    assert isinstance(node, Node)
    assert y.grad_fn is node
    inner = node.next_functions[0][0]
    assert node.next_functions[0][0] is inner
    y.sum().backward()
    assert y.grad_fn is node
    assert (node.name(), type(node).__name__) == ("ExpBackward0", "ExpBackward0")
    assert repr(node).startswith("<ExpBackward0 object at 0x")


def test_outputs_of_an_application_share_their_node():
    q, r = weft.linalg.qr(weft.tensor([[1.0, 5.0], [3.0, 2.0]], requires_grad=True))
    assert q.grad_fn is r.grad_fn
    assert (q.output_nr, r.output_nr) == (0, 1)
    assert [tuple(each.shape) for each in q.grad_fn._input_metadata] == [(2, 2), (2, 2)]
    r.sum().backward()
    assert q.grad_fn is r.grad_fn


@pytest.mark.parametrize(
    ("make", "name", "inputs"),
    [
        (lambda x: x * 2, "MulBackward0", ["AccumulateGrad", None]),
        (lambda x: x**2, "PowBackward0", ["AccumulateGrad"]),
        (lambda x: x[weft.tensor([0])], "IndexBackward0", ["AccumulateGrad"]),
        (lambda x: x.clamp(0, 1), "ClampBackward1", ["AccumulateGrad"]),
        (lambda x: weft.where(x.detach() > 1, x, 0.0), "WhereBackward0", ["AccumulateGrad", None]),
        (lambda x: weft.cat([x, x]), "CatBackward0", ["AccumulateGrad", "AccumulateGrad"]),
        (lambda x: weft.lerp(x, x, 0.5), "LerpBackward0", ["AccumulateGrad", "AccumulateGrad"]),
        (lambda x: x.log1p(), "Log1PBackward0", ["AccumulateGrad"]),
        (lambda x: x[None].masked_fill(x[None].detach() > 1, 0.0), "MaskedFillBackward0", ["UnsqueezeBackward0"]),
        (lambda x: weft.linalg.svd(x[None]).S, "LinalgSvdBackward0", ["UnsqueezeBackward0"]),
        (lambda x: weft.special.entr(x), "SpecialEntrBackward0", ["AccumulateGrad"]),
        (lambda x: weft.nn.functional.linear(x[None], x[None]), "MmBackward0", ["UnsqueezeBackward0"] * 2),
        (lambda x: weft.nn.functional.max_pool2d(x[None, None], (1, 2)), "MaxPool2DWithIndicesBackward0", None),
    ],
)
def test_names_and_edges_are_those_of_pytorch(x, make, name, inputs):
    node = make(x).grad_fn
    assert node.name() == name
    assert inputs is None or names(node) == inputs


def test_a_leaf_is_a_node_that_knows_its_tensor(x):
    node = (x * 2).grad_fn.next_functions[0][0]
    assert node.variable is x
    assert (node.name(), node.next_functions) == ("torch::autograd::AccumulateGrad", ())
    assert node is get_gradient_edge(x).node
    assert node._sequence_nr() == 2**64 - 1
    first, second = x * 2, x * 3
    assert second.grad_fn._sequence_nr() > first.grad_fn._sequence_nr()


def test_the_graph_keeps_a_leaf_that_nobody_holds():
    y = weft.tensor([3.0], requires_grad=True) * 2
    leaf = y.grad_fn.next_functions[0][0]
    y.backward()
    assert (leaf.variable.tolist(), leaf.variable.grad.tolist()) == ([3], [2])


def test_nodes_make_no_cycles():
    gc.collect()
    gc.disable()
    try:
        x = weft.tensor([1.0], requires_grad=True)
        y = x * 2
        y.grad_fn.metadata["held"] = 1
        y.grad_fn.register_hook(lambda *_: None)
        y.tolist()  # nothing waits for it any more
        value = weakref.ref(y._value)
        del y
        assert value() is None
    finally:
        gc.enable()


def test_metadata_stays_with_the_node(x):
    y = x * 2
    y.grad_fn.metadata["key"] = 1
    assert y.grad_fn.metadata == {"key": 1}
    y.sum().backward()
    assert y.grad_fn.metadata == {"key": 1}


def test_a_node_can_be_called(x):
    assert [g if g is None else g.tolist() for g in (x * 3).grad_fn(weft.ones(2))] == [[3, 3], None]
    assert (x * x).square().grad_fn(weft.ones(2)).tolist() == [2, 8]
    with pytest.raises(RuntimeError, match=r"^MulBackward0: expected 1 gradients, one for each output, got 2$"):
        (x * 3).grad_fn(weft.ones(2), None)
    y = x.exp()
    y.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.grad_fn(weft.ones(2))


# --- hooks of nodes ---


def test_hooks_run_in_the_order_of_pytorch(x):
    order = []
    leaf = get_gradient_edge(x).node
    leaf.register_hook(lambda grads, outputs: order.append(("leaf after", grads, outputs[0].tolist())))
    leaf.register_prehook(lambda outputs: order.append(("leaf before", outputs[0].tolist())))
    x.register_post_accumulate_grad_hook(lambda leaf: order.append(("accumulated", leaf.grad.tolist())))
    x.register_hook(lambda g: order.append(("leaf", g.tolist())))
    y = x * 3
    y.grad_fn.register_hook(lambda grads, outputs: order.append(("after", grads[0].tolist(), grads[1])))
    y.grad_fn.register_prehook(lambda outputs: order.append(("before", outputs[0].tolist())))
    y.register_hook(lambda g: order.append(("tensor", g.tolist())))
    y.sum().backward(retain_graph=True)
    interior = [("tensor", [1, 1]), ("before", [1, 1]), ("after", [3, 3], None)]
    whole = [
        *interior,
        ("leaf", [3, 3]),
        ("leaf before", [3, 3]),
        ("accumulated", [3, 3]),
        ("leaf after", (), [3, 3]),
    ]
    assert order == whole
    order.clear()
    grad(y.sum(), x, retain_graph=True)
    assert order == [*interior, ("leaf", [3, 3])]
    order.clear()
    x.grad = None
    y.sum().backward(inputs=[x])
    assert order == whole


def test_hooks_of_nodes_replace_gradients_and_are_removed(x):
    y = x * 3
    before = y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 10,))
    after = y.grad_fn.register_hook(lambda grads, outputs: (grads[0] + 1, None))
    assert grad(y.sum(), x, retain_graph=True)[0].tolist() == [31, 31]
    before.remove()
    assert grad(y.sum(), x, retain_graph=True)[0].tolist() == [4, 4]
    after.remove()
    assert grad(y.sum(), x)[0].tolist() == [3, 3]


def test_hooks_of_nodes_see_all_outputs():
    m = weft.tensor([[1.0, 5.0], [3.0, 2.0]], requires_grad=True)
    q, r = weft.linalg.qr(m)
    seen = []
    q.grad_fn.register_prehook(lambda outputs: seen.append([g is not None for g in outputs]))
    r.grad_fn.register_hook(lambda grads, outputs: seen.append((len(grads), [g is not None for g in outputs])))
    r.sum().backward()
    assert seen == [[False, True], (1, [False, True])]


@pytest.mark.parametrize(
    ("result", "error", "text"),
    [
        (lambda grads: grads[0], TypeError, r"^expected tuple, but hook returned 'Tensor'"),
        (lambda grads: (1, None), TypeError, r"^expected Variable, but hook returned 'int'"),
        (
            lambda grads: (grads[0],),
            RuntimeError,
            r"has returned an incorrect number of values \(got 1, but expected 2",
        ),
        (
            lambda grads: (grads[0],) * 3,
            RuntimeError,
            r"has returned an incorrect number of values \(got 3, but expected 2",
        ),
        (lambda grads: (grads[0], grads[0]), RuntimeError, r"^can't replace a None gradient with a non-None value$"),
        (lambda grads: (weft.ones(5), None), RuntimeError, r"^hook '<lambda>' has changed the size of value"),
    ],
)
def test_what_hooks_of_nodes_may_not_return(x, result, error, text):
    y = x * 2
    y.grad_fn.register_hook(lambda grads, outputs: result(grads))
    with pytest.raises(error, match=text):
        y.sum().backward()


def test_checkpoints_keep_hooks_of_nodes(x):
    seen = []

    def block(x):
        y = x * 2
        y.grad_fn.register_hook(lambda *_: seen.append(1))
        return y.exp()

    weft.utils.checkpoint.checkpoint(block, x, use_reentrant=False).sum().backward()
    assert seen == [1]


# --- edges ---


def test_edges_stand_for_tensors(x):
    y = x * x
    loss = y.sum() * 2
    edge = get_gradient_edge(y)
    assert edge == GradientEdge(y.grad_fn, 0, None)
    assert grad(loss, edge, retain_graph=True)[0].tolist() == [2, 2]
    assert grad(get_gradient_edge(loss), [get_gradient_edge(x), y], retain_graph=True)[0].tolist() == [4, 8]
    assert grad(edge, x, weft.ones(2), retain_graph=True)[0].tolist() == [2, 4]
    del y
    backward([edge], [weft.ones(2)], retain_graph=True)
    assert x.grad.tolist() == [2, 4]
    backward(loss, inputs=[get_gradient_edge(x)])
    assert x.grad.tolist() == [6, 12]


def test_edges_of_several_outputs():
    q, r = weft.linalg.qr(weft.tensor([[1.0, 5.0], [3.0, 2.0]], requires_grad=True))
    edges = [get_gradient_edge(r), get_gradient_edge(q)]
    first, second = grad((q * r).sum(), edges)
    assert (first.tolist(), second.tolist()) == (q.tolist(), r.tolist())


def test_an_edge_of_a_users_node_keeps_the_graph():
    class Double(weft.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = weft.ones(2, requires_grad=True)
    edge = get_gradient_edge(Double.apply(x.exp()))
    assert grad(edge, x, weft.ones(2))[0].tolist() == pytest.approx([2 * weft.e] * 2)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda x: get_gradient_edge(x.detach()),
            "It is not possible to get the gradient edge for a Tensor that does ",
        ),
        (lambda x: grad(get_gradient_edge(x * 2), x), "grad can be implicitly created only for scalar outputs"),
        (lambda x: grad(get_gradient_edge(x * 2), x, weft.ones(3)), r"Mismatch in shape: grad_output\[0\]"),
        (
            lambda x: grad(x.sum(), get_gradient_edge(x * 2), allow_unused=True, materialize_grads=True),
            "materialize_grads cannot be used when the given input is a GradientEdge",
        ),
        (
            lambda x: grad(GradientEdge(weft.linalg.qr(x[None].T).Q.grad_fn, 1), x, weft.ones(1, 1)),
            "output 1 of LinalgQrBackward0 is not known here",
        ),
        (lambda x: backward(x.sum(), inputs=[get_gradient_edge(x * 2)]), r"backward\(inputs=\.\.\.\): the edge of"),
    ],
)
def test_edges_that_are_refused(x, call, text):
    with pytest.raises(RuntimeError, match=f"^{text}"):
        call(x)


# --- several tensors ---


def test_a_hook_of_several_tensors_waits_for_those_that_the_pass_computes():
    """The example of PyTorch's documentation."""
    a, b = weft.rand(2, 3, requires_grad=True), weft.rand(2, 3, requires_grad=True)
    c, d = a * b, a * b
    seen = []
    handle = register_multi_grad_hook((a, b, c, d), lambda grads: seen.append([g is not None for g in grads]))
    c.sum().backward(retain_graph=True)
    c.sum().backward(inputs=(a,), retain_graph=True)
    (c + d).sum().backward(retain_graph=True)
    assert seen == [[True, True, True, False], [True, False, True, False], [True] * 4]
    handle.remove()
    c.sum().backward()
    assert len(seen) == 3


def test_a_hook_of_several_tensors_is_called_for_the_first(x):
    y, seen = x * 2, []
    with register_multi_grad_hook((x, y, weft.ones(1)), lambda g: seen.append(g.tolist()), mode="any"):
        y.sum().backward(retain_graph=True)
        (y * 3).sum().backward()
    assert seen == [[1, 1], [3, 3]]


def test_other_modes_and_tensors_are_refused(x):
    with pytest.raises(ValueError, match=r"^Expects mode to be one of \('all', 'any'\) but got some$"):
        register_multi_grad_hook((x,), print, mode="some")
    with pytest.raises(AssertionError, match=r"^Expected gradient function to be set: .* index 1 does not$"):
        register_multi_grad_hook((x, x.detach()), print)


def test_versions_are_counted():
    a, b = weft.zeros(2), weft.zeros(2)
    increment_version(a)
    increment_version([a, b[:1]])
    assert (a._version, b._version) == (2, 1)
    set_warn_on_accumulate_grad_stream_mismatch(False)
