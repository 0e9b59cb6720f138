"""Hooks of modules, forwards and backwards."""

from __future__ import annotations

import itertools
import pickle

import pytest

import weft
from weft import nn
from weft._base import handles
from weft.nn.modules import module as everywhere


def double():
    """A linear layer that doubles one number."""
    layer = nn.Linear(1, 1, bias=False)
    with weft.no_grad():
        layer.weight.fill_(2)
    return layer


def test_forward_hooks_run_in_order_and_may_replace():
    layer, calls = double(), []
    layer.register_forward_pre_hook(lambda module, args: calls.append("pre") or (args[0] + 1,))
    layer.register_forward_hook(lambda module, args, out: calls.append("second") or out * 10)
    first = layer.register_forward_hook(lambda module, args, out: calls.append("first"), prepend=True)
    assert layer(weft.ones(1)).tolist() == [40]
    assert calls == ["pre", "first", "second"]
    first.remove()
    layer(weft.ones(1))
    assert calls[3:] == ["pre", "second"]


def test_hooks_may_see_keyword_arguments():
    class Scale(nn.Module):
        def forward(self, x, by=1):
            return x * by

    scale, seen = Scale(), []
    scale.register_forward_pre_hook(lambda module, args, kwargs: (args, {"by": kwargs["by"] + 1}), with_kwargs=True)
    scale.register_forward_hook(lambda module, args, kwargs, out: seen.append(kwargs), with_kwargs=True)
    assert scale(weft.ones(1), by=2).tolist() == [3]
    assert seen == [{"by": 3}]
    scale.register_forward_pre_hook(lambda module, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(
        RuntimeError, match=r"^forward pre-hook must return None or a tuple of \(new_args, new_kwargs\), but got 3\.$"
    ):
        scale(weft.ones(1), by=2)


def test_some_hooks_run_after_errors_too():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    broken, calls = Broken(), []
    broken.register_forward_hook(lambda *_: calls.append("usual"))
    broken.register_forward_hook(lambda *_: calls.append("always"), always_call=True)
    with pytest.raises(ValueError, match=r"^broken$"):
        broken(1)
    assert calls == ["always"]


def test_backward_hooks_see_all_gradients_together_and_may_replace_them():
    class Two(nn.Module):
        def forward(self, x, note, y):
            return x * 2, y * 3

    two, seen = Two(), []
    two.register_full_backward_hook(lambda module, inward, outward: seen.append((inward, outward)))
    two.register_full_backward_hook(lambda module, inward, outward: (inward[0] * 10, None, inward[2]))
    two.register_full_backward_pre_hook(lambda module, outward: (outward[0] * 5, outward[1]))
    x, y = weft.ones(1, requires_grad=True), weft.ones(1, requires_grad=True)
    a, b = two(x, "note", y)
    (a + b).sum().backward()
    ((inward, outward),) = seen
    assert [None if g is None else g.tolist() for g in inward] == [[10], None, [3]]
    assert [g.tolist() for g in outward] == [[5], [1]]
    assert (x.grad.tolist(), y.grad.tolist()) == ([100], [3])


def test_backward_hooks_run_where_no_input_needs_a_gradient():
    layer, seen = double(), []
    layer.register_full_backward_hook(lambda module, inward, outward: seen.append((inward, outward[0].tolist())))
    layer(weft.ones(1)).sum().backward()
    assert seen == [((None,), [1])]
    assert layer.weight.grad.tolist() == [[1]]
    with weft.no_grad():
        layer(weft.ones(1))
    assert len(seen) == 1


def test_a_backward_hook_must_return_as_many_gradients():
    layer = double()
    layer.register_full_backward_hook(lambda module, inward, outward: (1, 2))
    out = layer(weft.ones(1, requires_grad=True)).sum()
    with pytest.raises(
        RuntimeError, match=r"^Backward hook returned an invalid number of grad_input, got 2, but expected 1$"
    ):
        out.backward()


def test_backward_hooks_need_tensors_to_come_out():
    class Listed(nn.Module):
        def forward(self, x):
            return [x]

    listed = Listed()
    listed.register_full_backward_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="^For backward hooks to be called, module output should be a Tensor"):
        listed(weft.ones(1, requires_grad=True))


def test_two_hooks_whose_handles_are_dropped_both_run():
    x, seen = weft.ones(1, requires_grad=True), []
    x.register_hook(lambda grad: seen.append("a"))
    x.register_hook(lambda grad: seen.append("b"))
    x.sum().backward()
    assert seen == ["a", "b"]


def test_regular_and_full_backward_hooks_of_all_modules_do_not_mix():
    ways = (everywhere.register_module_backward_hook, everywhere.register_module_full_backward_hook)
    assert not everywhere._has_any_global_hook()
    for first, second in (ways, ways[::-1]):
        with first(print):
            assert everywhere._has_any_global_hook()
            with pytest.raises(RuntimeError, match=r"^Cannot use both regular backward hooks and full backward hooks"):
                second(print)
        second(print).remove()


def test_hooks_of_all_modules_run_in_every_call_of_a_compiled_one():
    net, calls = weft.compile(nn.Sequential(nn.Linear(3, 4), nn.ReLU())), []
    x = weft.ones(2, 3, requires_grad=True)
    with (
        everywhere.register_module_forward_pre_hook(lambda module, args: calls.append(("before", module))),
        everywhere.register_module_forward_hook(lambda module, args, output: calls.append(("after", module))),
        everywhere.register_module_full_backward_hook(lambda module, *grads: calls.append(("backward", module))),
    ):
        for _ in range(3):
            net(x).sum().backward()
            names = [(kind, type(module).__name__) for kind, module in calls]
            assert names == [
                ("before", "OptimizedModule"),
                ("before", "Sequential"),
                ("before", "Linear"),
                ("after", "Linear"),
                ("before", "ReLU"),
                ("after", "ReLU"),
                ("after", "Sequential"),
                ("after", "OptimizedModule"),
                ("backward", "ReLU"),
                ("backward", "Linear"),
                ("backward", "Sequential"),
                ("backward", "OptimizedModule"),
            ]
            calls.clear()


def test_hooks_of_all_modules_run_ahead_of_a_modules_own():
    layer, calls = double(), []

    def noting(name):
        return lambda module, *given: calls.append((name, len(given)))

    kinds = ("forward_pre_hook", "forward_hook", "full_backward_pre_hook", "full_backward_hook")
    for kind in kinds:
        getattr(layer, f"register_{kind}")(noting(f"own {kind}"))
    added = [getattr(everywhere, f"register_module_{kind}")(noting(kind)) for kind in kinds]
    added.append(everywhere.register_module_forward_hook(noting("with kwargs"), with_kwargs=True))
    try:
        layer(weft.ones(1, requires_grad=True)).sum().backward()
    finally:
        for handle in added:
            handle.remove()
    assert calls == [
        ("forward_pre_hook", 1),
        ("own forward_pre_hook", 1),
        ("forward_hook", 2),
        ("with kwargs", 3),
        ("own forward_hook", 2),
        ("full_backward_pre_hook", 1),
        ("own full_backward_pre_hook", 1),
        ("full_backward_hook", 2),
        ("own full_backward_hook", 2),
    ]
    calls.clear()
    nn.ReLU()(weft.ones(1))
    assert not calls


def test_hooks_of_all_modules_may_replace_what_is_registered():
    with (
        everywhere.register_module_parameter_registration_hook(lambda module, name, p: nn.Parameter(weft.zeros(1))),
        everywhere.register_module_buffer_registration_hook(lambda module, name, b: weft.full((1,), 5.0)),
        everywhere.register_module_module_registration_hook(lambda module, name, m: nn.Tanh()),
    ):
        made = nn.Sequential(nn.ReLU())
        made.weight = nn.Parameter(weft.ones(3))
        made.register_buffer("seen", weft.ones(3))
        made.below = nn.ReLU()
    assert (made.weight.tolist(), made.seen.tolist()) == ([0], [5])
    assert [type(module) for module in made.children()] == [nn.Tanh, nn.Tanh]


def test_a_compiled_call_sees_hooks_that_come_later():
    layer, calls = double(), []
    compiled = weft.compile(layer)
    x = weft.ones(1)
    assert compiled(x).tolist() == compiled(x).tolist() == [2]
    with everywhere.register_module_forward_hook(lambda *_: calls.append(1)):
        compiled(x)
        with pytest.warns(UserWarning, match=r"^weft.compile: Linear changes `calls`; it runs uncaptured"):
            compiled(x)
    assert calls == [1, 1] * 2  # for the compiled module, too, as in PyTorch
    assert compiled(x).tolist() == [2]
    assert calls == [1, 1] * 2


def test_the_error_of_a_hook_that_is_always_called_is_only_a_warning():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    def failing(*_):
        raise KeyError("hook")

    broken = Broken()
    broken.register_forward_hook(failing, always_call=True)
    with (
        pytest.warns(
            UserWarning, match="^module forward hook with ``always_call=True`` raised an exception that was sil"
        ),
        pytest.raises(ValueError, match=r"^broken$"),
    ):
        broken(1)
    with (
        everywhere.register_module_forward_hook(failing, always_call=True),
        pytest.warns(UserWarning, match="^(global )?module forward hook with ``always_call=True`` raised"),
        pytest.raises(ValueError, match=r"^broken$"),
    ):
        broken(1)


def test_backward_hooks_of_both_names_exclude_each_other():
    layer = double()
    layer.register_backward_hook(lambda *_: None)
    with pytest.raises(
        RuntimeError, match=r"^Cannot use both regular backward hooks and full backward hooks on a single"
    ):
        layer.register_full_backward_hook(lambda *_: None)


def test_backward_hooks_are_told_when_they_return_too_much():
    layer = double()
    layer.register_full_backward_pre_hook(lambda module, outward: (1, 2))
    out = layer(weft.ones(1, requires_grad=True)).sum()
    with pytest.raises(
        RuntimeError, match=r"^Backward pre hook returned an invalid number of grad_output, got 2, but expected 1$"
    ):
        out.backward()
    layer = double()
    layer.register_full_backward_hook(lambda module, inward, outward: (weft.ones(1),))
    out = layer(weft.ones(1)).sum()
    with pytest.raises(
        RuntimeError, match=r"^Backward hook for Modules where no input requires gradient should always"
    ):
        out.backward()


def noted(module, args):
    module.notes = getattr(module, "notes", 0) + 1


def test_hooks_of_unpickled_modules_keep_their_places(monkeypatch):
    layer = double()
    layer.register_forward_pre_hook(noted)
    data = pickle.dumps(layer)
    (key,) = layer._forward_pre_hooks
    monkeypatch.setattr(handles, "_keys", itertools.count(key))  # as another process counts
    other = pickle.loads(data)
    other.register_forward_pre_hook(noted)
    other(weft.ones(1))
    assert other.notes == 2
    assert list(other._forward_pre_hooks.values()) == [noted, noted]


def test_backward_hooks_see_names_and_may_drop_them():
    layer = nn.Linear(3, 4)
    seen = []

    def before(module, grad_output):
        seen.append(grad_output[0].names)

    def after(module, grad_input, grad_output):
        seen.extend((grad_input[0].names, grad_output[0].names))
        return (grad_input[0].rename(None),)

    layer.register_full_backward_pre_hook(before)
    layer.register_full_backward_hook(after)
    x = weft.ones(2, 3, names=("N", "C"), requires_grad=True)
    layer(x).sum().backward()
    assert seen == [("N", None), ("N", "C"), ("N", None)]
    assert x.grad.names == ("N", "C")

    layer.register_full_backward_hook(lambda module, grad_input, _: (grad_input[0].rename("C", "N"),))
    with pytest.raises(RuntimeError, match=r"^Mismatch in names: the result of a hook has dims \['C', 'N'\]"):
        layer(x).sum().backward()
