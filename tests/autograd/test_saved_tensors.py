"""Hooks on the tensors that derivatives read; programs are those of PyTorch's documentation."""

from __future__ import annotations

import os
import uuid

import pytest

import weft
from weft import nn
from weft.autograd import Function, grad
from weft.autograd.graph import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    save_on_cpu,
    saved_tensors_hooks,
)


@pytest.fixture
def x():
    return weft.tensor([1.0, 2.0], dtype=weft.float64, requires_grad=True)


class Counting(saved_tensors_hooks):
    """Counts what is packed and unpacked."""

    def __init__(self):
        self.packed, self.unpacked = [], 0
        super().__init__(self._pack, self._unpack)

    def _pack(self, tensor):
        self.packed.append(tensor)
        assert not weft.is_grad_enabled()
        return tensor.detach()

    def _unpack(self, packed):
        self.unpacked += 1
        return packed


def test_both_factors_of_a_product_are_packed():
    a = weft.ones(5, requires_grad=True)
    b = weft.ones(5, requires_grad=True) * 2
    outer, counting = Counting(), Counting()
    with outer, counting:
        y = a * b
    assert not outer.packed
    assert counting.packed[0] is a
    assert type(counting.packed[1].grad_fn).__name__ == "MulBackward0"
    y.sum().backward()
    assert counting.unpacked == 2
    assert a.grad.tolist() == [2] * 5


@pytest.mark.parametrize(
    ("call", "count"),
    [
        (lambda x: x + x, 0),
        (lambda x: x * 2, 0),
        (lambda x: x.exp(), 1),
        (lambda x: x**3, 1),
        (lambda x: x.detach() * x, 1),
        (lambda x: x.softmax(0), 1),
        (lambda x: x.exp().tanh(), 2),
    ],
)
def test_what_is_packed_is_what_pytorch_packs(x, call, count):
    counting = Counting()
    with counting:
        call(x)
    assert len(counting.packed) == count


def test_what_is_unpacked_is_used(x):
    with saved_tensors_hooks(lambda tensor: tensor * 2, lambda packed: packed):
        y = x**3
    assert grad(y.sum(), x)[0].tolist() == [12, 48]
    with saved_tensors_hooks(lambda tensor: tensor, lambda packed: packed * 2):
        y = x * x * x
    assert grad(y.sum(), x)[0].tolist() == [10, 40]  # 2x² + 2x · 4x


def test_derivatives_of_higher_order(x):
    def run():
        y = nn.functional.layer_norm((x * x).softmax(0).exp(), (2,))
        (g,) = grad((y * x).sum(), x, create_graph=True)
        return grad((g * g).sum(), x)[0].tolist()

    expected = run()
    with saved_tensors_hooks(lambda tensor: tensor.numpy(force=True), weft.as_tensor):
        found = run()
    assert found == pytest.approx(expected, rel=1e-12)


def test_hooks_may_convert_what_they_get_to_numpy(x):
    """A hook runs where no gradients are recorded, so also a leaf that requires one can be converted there."""
    with saved_tensors_hooks(lambda tensor: tensor.numpy(), weft.from_numpy):
        y = x.sin() + (x * 2).exp()
    assert grad(y.sum(), x)[0].tolist() == grad((x.sin() + (x * 2).exp()).sum(), x)[0].tolist()


def test_tensors_on_disk(tmp_path):
    class File:
        def __init__(self):
            self.name = str(tmp_path / str(uuid.uuid4()))

        def __del__(self):
            os.remove(self.name)

    def pack(tensor):
        if tensor.numel() < 3:
            return tensor
        file = File()
        weft.save(tensor, file.name)
        return file

    def unpack(packed):
        return packed if isinstance(packed, weft.Tensor) else weft.load(packed.name)

    with saved_tensors_hooks(pack, unpack):
        x = weft.ones(5, requires_grad=True)
        y = (x.pow(2) * x).exp()
    assert len(os.listdir(tmp_path)) == 4
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx([3 * weft.e] * 5)
    assert not os.listdir(tmp_path)


def test_packed_values_do_not_stay_in_the_graph():
    def arrays(value):
        stack, seen, count = [value], set(), 0
        while stack:
            each = stack.pop()
            if id(each) in seen or each is None:
                continue
            seen.add(id(each))
            count += getattr(each, "available", None) is not None and each.aval.shape == (64,)
            stack += [*getattr(each, "inputs", ()), *([] if each.role is each else [each.role])]
        return count

    def run():
        h = x
        for _ in range(8):
            h = h.exp().log1p()
        return h.sum()

    x = weft.ones(64, requires_grad=True)
    plain = run()
    with saved_tensors_hooks(lambda tensor: tensor.numpy(force=True), weft.as_tensor):
        packed = run()
    plain.item(), packed.item()
    assert arrays(plain._value) > 8
    assert not arrays(packed._value)
    assert grad(packed, x)[0].tolist() == grad(plain, x)[0].tolist()


def test_modules_can_save_on_the_cpu():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, x):
            with save_on_cpu(pin_memory=True):
                x = weft.relu(self.first(x))
            return self.second(x)

    weft.manual_seed(0)
    model = Model()
    model(weft.ones(2, 4)).sum().backward()
    found = model.first.weight.grad.tolist()
    model.zero_grad()
    model.second(weft.relu(model.first(weft.ones(2, 4)))).sum().backward()
    assert model.first.weight.grad.tolist() == found


def test_parameters_are_recognised():
    layer, kinds = nn.Linear(2, 2), []
    with saved_tensors_hooks(lambda tensor: kinds.append(type(tensor)) or tensor, lambda packed: packed):
        layer(weft.ones(1, 2, requires_grad=True))
    assert nn.Parameter in kinds


def test_graphs_that_are_kept_unpack_again(x):
    counting = Counting()
    with counting:
        y = x.exp().sum()
    y.backward(retain_graph=True)
    y.backward()
    assert counting.unpacked == 2
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()


def test_users_functions_save_packed_tensors(x):
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            result = x * 2
            ctx.save_for_backward(x, result, None, x * 3)
            return result

        @staticmethod
        def backward(ctx, g):
            x, result, nothing, third = ctx.saved_tensors
            assert (x.requires_grad, result.requires_grad, nothing, third.requires_grad) == (True, True, None, False)
            return g * (x + result + third)

    counting = Counting()
    with counting:
        y = Scaled.apply(x)
    assert len(counting.packed) == 3
    assert grad(y.sum(), x)[0].tolist() == [6, 12]
    assert counting.unpacked == 3


def test_what_was_saved_can_be_seen(x):
    y = x.exp()
    assert y.grad_fn._saved_result.tolist() == y.tolist()
    assert y.grad_fn._saved_result.grad_fn is y.grad_fn
    z = y**3
    assert z.grad_fn._saved_self.tolist() == y.tolist()
    assert z.grad_fn._saved_exponent == 3
    assert "_saved_self" in dir(z.grad_fn)
    assert (x + x).grad_fn._saved_other is None
    with pytest.raises(AttributeError, match=r"^'PowBackward0' object has no attribute '_saved_weight'$"):
        z.grad_fn._saved_weight
    z.sum().backward()
    with pytest.raises(RuntimeError, match="directly access saved tensors after they have already been freed"):
        z.grad_fn._saved_self


def test_hooks_of_one_saved_tensor(x):
    y = x * x
    raw = y.grad_fn._raw_saved_self
    raw.register_hooks(lambda tensor: tensor * 2, lambda packed: packed)
    with pytest.raises(RuntimeError, match=r"whose hooks have already been set\. Hint: only one pair"):
        raw.register_hooks(lambda tensor: tensor, lambda packed: packed)
    assert grad(y.sum(), x)[0].tolist() == [3, 6]
    with pytest.raises(RuntimeError, match=r"^Calling register_hooks on a saved tensor after it has been freed"):
        raw.register_hooks(lambda tensor: tensor, lambda packed: packed)
    with pytest.raises(TypeError, match="hooks must be callable, got int"):
        (x * x).grad_fn._raw_saved_self.register_hooks(1, 2)


def test_writes_do_not_reach_what_is_saved():
    """The example of `allow_mutation_on_saved_tensors` in PyTorch's documentation."""
    with allow_mutation_on_saved_tensors():
        a = weft.ones(2, 3, requires_grad=True)
        b = a.clone()
        out = (b**2).sum()
        b.sin_()
        out.backward()
        with pytest.raises(RuntimeError, match="contexts cannot be nested"), allow_mutation_on_saved_tensors():
            pass
    assert a.grad.tolist() == [[2] * 3] * 2


def test_hooks_can_be_disabled():
    with (
        disable_saved_tensors_hooks("not here"),
        pytest.raises(RuntimeError, match=r"^not here$"),
        save_on_cpu(),
    ):
        pass
    with save_on_cpu(), pytest.raises(RuntimeError, match=r"^not here$"), disable_saved_tensors_hooks("not here"):
        pass
    with save_on_cpu():
        pass


def same(tensor):
    return tensor


def fails(_):
    raise KeyError("boom")


@pytest.mark.parametrize(
    ("pack", "unpack", "error", "text"),
    [
        (same, lambda _: 1, TypeError, r"expected to be a Tensor but got result of type int$"),
        (same, lambda _: weft.ones(5), RuntimeError, r"of shape \[5\] for a saved tensor of shape \[2\]"),
        (lambda tensor: tensor.mul_(2), same, RuntimeError, r"pack hook is modifying its input in place"),
        (fails, same, KeyError, "boom"),
        (same, fails, KeyError, "boom"),
    ],
)
def test_what_hooks_do_wrong(x, pack, unpack, error, text):
    def run():
        y = x * 2
        with saved_tensors_hooks(pack, unpack):
            z = y.exp()
        z.sum().backward()

    with pytest.raises(error, match=text):
        run()


def test_compiled_functions_are_not_replayed_past_hooks(x):
    def run():
        with counting:
            return function(x)

    function = weft.compile(lambda x: (x * x).exp())
    counting = Counting()
    with pytest.warns(UserWarning, match="saved tensor"):
        run()
    y = run()
    assert len(counting.packed) == 6
    assert grad(y.sum(), x)[0].tolist() == pytest.approx([2 * weft.e, 4 * weft.e**4])
