"""Captures and aliases: arguments, state and results that share storage, as in the function itself."""

from __future__ import annotations

import warnings

import pytest

import weft
from tests._tensor.compile.programs import agree, captures, row
from weft import nn, optim


def test_arguments_that_alias_each_other_in_another_way_are_another_kind_of_call():
    def make():
        def function(x, y):
            x.add_(1)
            return y * 2

        def program(f):
            seen = []
            for _ in range(3):
                a, b, c = row(1, 2), row(3, 4), row(3, 4, 5)
                seen += [f(a, a), a, f(b, b[:]), b, f(c[:2], c[1:]), c, f(c[1:], c[:2]), c, f(b, row(1, 1)), b]
                seen = [x if isinstance(x, list) else x.tolist() for x in seen]
            return seen

        return function, program

    agree(make, runs=4)


WAYS = {
    "another tensor": lambda state: row(1, 1, 1),
    "the state": lambda state: state,
    "a part of it": lambda state: state[1:],
    "all of it": lambda state: state.view(3),
}


@pytest.mark.parametrize("written", ["the state", "the argument"])
def test_an_argument_may_be_a_view_of_state(written):
    def make():
        state = row(1, 2, 3)

        def function(x):
            (state if written == "the state" else x).add_(1)
            return x * 2, state * 3

        def program(f):
            return [[x.tolist() for x in (*f(way(state)), state)] for _ in range(3) for way in WAYS.values()]

        return function, program

    agree(make, runs=len(WAYS))


def test_views_of_views_are_written_through_at_their_own_places():
    def make():
        def function(x):
            x.mul_(10)
            return x.sum()

        def program(f):
            base = weft.arange(24.0).reshape(2, 3, 4)
            part = base.transpose(0, 1)
            return [(f(part[i][:, i]).item(), base.tolist()) for i in range(3)]

        return function, program

    agree(make, runs=1)


def test_results_alias_arguments_state_and_each_other():
    def make():
        state = row(1, 2, 3)

        def function(x):
            h = x * 2
            return x, x[0], state, state[1:], h, h[1:], h.view(1, 3), state.detach(), h

        def program(f):
            seen = []
            for i in range(4):
                x = row(1, 2, 3) + i
                results = f(x)
                for at, result in enumerate(results):
                    result.add_(10 * (at + 1))
                    seen.append([r.tolist() for r in (*results, x, state)])
                seen.append([results[0] is x, results[2] is state, results[8] is results[4]])
            return seen

        return function, program

    agree(make, runs=1)


def test_gradients_flow_through_results_that_are_views():
    def make():
        weight = row(1, 2, 3).requires_grad_()

        def function(x):
            h = weight * x
            return h[1:], h.view(1, 3)

        def program(f):
            seen = []
            for i in range(3):
                weight.grad = None
                first, second = f(row(i, 1, 2))
                first.mul_(3)
                (first.sum() + second.sum()).backward()
                seen.append((first.tolist(), second.tolist(), weight.grad.tolist()))
            return seen

        return function, program

    agree(make, runs=1)


def test_a_result_shows_what_was_written_after_it_was_made():
    def make():
        def function(x):
            y = x.view(3, 1)
            y.mul_(2)
            x[0] = 7
            return y, x.sum()

        def program(f):
            seen = []
            for i in range(3):
                leaf = row(1, 2, i).requires_grad_()
                x = leaf * 2
                y, total = f(x)
                (total + y.sum()).backward()
                seen.append((y.tolist(), x.tolist(), leaf.grad.tolist()))
            return seen

        return function, program

    agree(make, runs=1)


def test_gradients_are_left_in_the_arguments_of_the_call():
    def make():
        def function(weight, x):
            (weight * x).sum().backward()
            return weight.grad

        def program(f):
            seen = []
            first, second = row(1, 2).requires_grad_(), row(3, 4).requires_grad_()
            for weight in (first, second, first, second):
                grad = f(weight, row(2, 3))
                seen.append((grad is weight.grad, [w.grad is not None and w.grad.tolist() for w in (first, second)]))
            return seen

        return function, program

    agree(make, runs=2)


def test_a_leaf_that_is_written_keeps_its_own_gradient():
    def make():
        def function(weight):
            with weft.no_grad():
                weight.sub_(1)

        def program(f):
            first, second = row(1, 2).requires_grad_(), row(3, 4).requires_grad_()
            for weight in (first, second):
                f(weight)
            (first * 2).sum().backward()
            (second * 3).sum().backward()
            return [first.tolist(), second.tolist(), first.grad.tolist(), second.grad.tolist(), second.is_leaf]

        return function, program

    agree(make, runs=1)


def test_a_leaf_that_the_function_makes_is_another_one_in_every_call():
    def make():
        def function(x):
            leaf = x.detach().requires_grad_()
            (leaf * leaf).sum().backward()
            return leaf

        def program(f):
            leaves = [f(row(i, 2)) for i in range(3)]
            leaves[1].mul(5).sum().backward()
            return [(leaf.tolist(), leaf.grad.tolist(), leaf.is_leaf) for leaf in leaves]

        return function, program

    agree(make, runs=1)


def test_tensors_that_the_function_makes_of_numbers_are_made_anew():
    def make():
        def function(x):
            total = weft.tensor([0.0])
            total.add_(x.sum())
            return total

        return function, lambda f: [f(row(i, 2)).add_(5).tolist() for i in range(4)]

    agree(make, runs=1)


def test_what_is_detached_is_no_constant():
    doubled = weft.compile(lambda x: x.detach() * 2)
    assert [doubled(row(i)).tolist() for i in range(3)] == [[0], [2], [4]]
    assert captures(doubled) == 1


def test_tensors_of_one_value_may_have_two_the_next_time():
    first, second = weft.zeros(2, requires_grad=True), weft.zeros(2, requires_grad=True)
    (first + second).sum().backward()
    function = weft.compile(lambda x, y: x * 2 + y * 3)
    assert function(first.grad, second.grad).tolist() == [5, 5]
    assert function(row(1, 1), row(2, 2)).tolist() == [8, 8]


def test_an_argument_that_becomes_a_view_is_not_captured():
    def make():
        def program(f):
            x = weft.arange(6.0).reshape(2, 3)
            part = x[0]
            f(x)
            f(x)
            f(x)
            x.add_(1)
            return [tuple(x.shape), x.tolist(), part.tolist()]

        return lambda x: x.t_(), program

    with pytest.warns(UserWarning, match=r"makes a tensor from outside a view of another one; it runs uncaptured"):
        agree(make)


def test_two_leaves_and_a_leaf_and_a_result_are_told_apart():
    def function(x):
        return x.add_(1)

    compiled = weft.compile(function)
    compiled(row(1) * row(1).requires_grad_())
    with pytest.raises(RuntimeError, match=r"^a leaf Variable that requires grad is being used in an in-place"):
        compiled(row(1).requires_grad_())


def test_what_a_function_makes_and_gives_to_a_module_or_an_optimizer_is_new_in_each_call():
    class Plus(weft.nn.Module):
        def __init__(self, term):
            super().__init__()
            self.term = term

        def forward(self, x):
            return x + self.term

    @weft.compile
    def function(x):
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        weft.optim.SGD([w], lr=0.5).step()
        term = weft.tensor([3.0, 4.0])
        return Plus(term)(x), w, term

    for _ in range(4):
        results = function(weft.ones(2))
        assert [r.tolist() for r in results] == [[4, 5], [1, 2], [3, 4]]
        with weft.no_grad():
            for result in results:
                result.fill_(42)


def test_gradients_flow_to_leaves_that_a_function_has_made():
    @weft.compile
    def function(x):
        w = weft.tensor([1.0, 2.0], requires_grad=True)
        return w, x * w

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what cannot be replayed
        for _ in range(4):
            w, y = function(weft.ones(2))
            y.sum().backward()
            assert w.grad.tolist() == [1, 1]


@pytest.mark.parametrize("share", [lambda x: weft.zeros(2).set_(x), weft.nn.Parameter])
def test_an_argument_keeps_its_storage_where_others_come_to_share_it(share):
    @weft.compile
    def function(x):
        other = share(x)
        x[0] = 5
        return other * 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what cannot be replayed
        for _ in range(4):
            x = weft.ones(2)
            assert function(x).tolist() == [5, 1]
            assert x.tolist() == [5, 1]


LEAVES = {
    "of its own storage": lambda: nn.Parameter(weft.ones(2, 2)),
    "transposed": lambda: nn.Parameter(weft.ones(2, 2).t()),
    "a part": lambda: nn.Parameter(weft.ones(4, 2).chunk(2)[1]),
    "not a parameter": lambda: weft.ones(4, 2)[:2].requires_grad_(),
}
leaves = pytest.mark.parametrize("leaf", LEAVES.values(), ids=LEAVES)


def as_lists(*tensors):
    return [None if x is None else x.tolist() for x in tensors]


@leaves
@pytest.mark.parametrize("cleared", ["inside", "outside"])
def test_a_step_leaves_its_own_gradient_in_a_leaf_that_is_a_view(leaf, cleared):
    def make():
        p = leaf()
        optimizer = optim.SGD([p], lr=0.25)

        def function():
            if cleared == "inside":
                optimizer.zero_grad()
            p.square().sum().backward()
            optimizer.step()
            return p.grad

        def program(f):
            grads, seen = [], []
            for _ in range(4):
                if cleared == "outside":
                    optimizer.zero_grad()
                grads.append(f())
                seen.append((grads[-1] is p.grad, as_lists(p, *grads)))  # earlier gradients stay as they were
            return seen

        return function, program

    agree(make, runs=1)


@leaves
def test_an_argument_that_is_a_view_keeps_its_gradient_as_it_is_written(leaf):
    def make():
        def function(p):
            p.grad = None
            p.square().sum().backward()
            p.data.sub_(p.grad / 4)

        def program(f):
            first, second = leaf(), leaf()
            seen = []
            for p in (first, second, first, second):
                f(p)
                seen.append(as_lists(first, first.grad, second, second.grad))
            return seen

        return function, program

    agree(make, runs=1)


def test_a_leaf_has_its_gradient_where_only_its_base_is_written():
    def make():
        base = weft.ones(4)
        p = nn.Parameter(base[1:3])

        def function():
            base.mul_(2)
            p.grad = None
            p.square().sum().backward()
            base.sub_(0.5)

        def program(f):
            return [(f(), as_lists(base, p, p.grad)) for _ in range(4)]

        return function, program

    agree(make, runs=1)


@leaves
def test_the_gradient_of_a_written_leaf_is_read_and_set_anew(leaf):
    def make():
        p = leaf()

        def function(x):
            with weft.no_grad():
                p.mul_(0.5)
            before = p.grad * 2
            p.grad = x * 3
            return before

        def program(f):
            seen = []
            for i in range(4):
                p.grad = weft.full((2, 2), float(i))
                seen.append(as_lists(f(weft.full((2, 2), i + 1.0)), p, p.grad))
            return seen

        return function, program

    agree(make, runs=1)


@leaves
def test_hooks_of_a_leaf_that_is_a_view_and_retained_gradients(leaf):
    def make():
        p = leaf()
        p.register_hook(lambda grad: grad * 2)

        def function():
            p.grad = None
            h = p.t()
            h.retain_grad()
            h.square().sum().backward()
            with weft.no_grad():
                p.sub_(p.grad / 4)
            return h.grad

        def program(f):
            return [as_lists(f(), p, p.grad) for _ in range(4)]

        return function, program

    agree(make, runs=1)


@leaves
@pytest.mark.parametrize("writes", ["before", "around"])
def test_gradients_flow_to_what_a_written_leaf_has_become(leaf, writes):
    """A replay passes gradients only to its inputs, so such a function is not replayed."""

    def make():
        p = leaf()

        def function():
            with weft.no_grad():
                p.mul_(0.5)
            loss = p.square().sum()
            if writes == "around":
                with weft.no_grad():
                    p.mul_(3)
            return loss

        def program(f):
            seen = []
            for _ in range(3):
                p.grad = None
                loss = f()
                loss.backward()
                seen.append(as_lists(loss, p, p.grad))
            return seen

        return function, program

    agree(make, runs=3)


@leaves
def test_a_written_leaf_that_no_longer_requires_a_gradient_is_not_captured(leaf):
    p = leaf()

    @weft.compile
    def function():
        with weft.no_grad():
            p.mul_(0.5)
        p.requires_grad_(False)

    with pytest.warns(UserWarning, match="changes whether a tensor requires a gradient"):
        function()
