"""`__torch_function__` of classes that merely have it, and of subclasses of `Tensor`."""

from __future__ import annotations

import copy
import inspect
import operator
import pickle

import numpy as np
import pytest

import weft
from weft import Tensor
from weft.overrides import get_overridable_functions, resolve_name


class Recorder:
    """Answers every function with itself and what it was given."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func, types, args, kwargs


class Silent(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func


class Logged(Tensor):
    log: list = []  # noqa: RUF012  emptied by each test

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.log.append((resolve_name(func), args, kwargs))
        return super().__torch_function__(func, types, args, kwargs)


class Plain(Tensor):
    pass


class Narrow(Plain):
    pass


class Other(Tensor):
    pass


def logged(*numbers):
    x = weft.tensor(numbers).as_subclass(Logged)
    Logged.log.clear()
    return x


def names():
    return [name for name, _, _ in Logged.log]


# --- the notes' programs --------------------------------------------------------------------------------------------


class ScalarTensor:
    def __init__(self, n, value):
        self._N = n
        self._value = value  # by chance the name of a tensor's own attribute

    def tensor(self):
        return self._value * weft.eye(self._N)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in HANDLED or not all(issubclass(t, (Tensor, ScalarTensor)) for t in types):
            return NotImplemented
        return HANDLED[func](*args, **(kwargs or {}))


def ensure_tensor(data):
    return data.tensor() if isinstance(data, ScalarTensor) else weft.as_tensor(data)


def add(input, other):
    try:
        if input._N != other._N:
            raise ValueError("Shape mismatch!")
        return ScalarTensor(input._N, input._value + other._value)
    except AttributeError:
        return weft.add(ensure_tensor(input), ensure_tensor(other))


HANDLED = {weft.mean: lambda x: float(x._value) / x._N, weft.add: add}


def test_a_scalar_tensor_of_the_notes():
    d = ScalarTensor(5, 2)
    assert weft.mean(d) == 0.4
    assert weft.add(d, d)._value == 4
    np.testing.assert_array_equal(weft.add(d, weft.ones(5, 5)).numpy(), 2 * np.eye(5) + 1)
    with pytest.raises(TypeError, match=r"^no implementation found for 'torch\.mul' on types that implement __torch_f"):
        weft.mul(d, 3)


class MetadataTensor:
    def __init__(self, data, metadata=None, **kwargs):
        self._t = weft.as_tensor(data, **kwargs)
        self._metadata = metadata

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        metadatas = tuple(a._metadata for a in args if hasattr(a, "_metadata"))
        args = [getattr(a, "_t", a) for a in args]
        return MetadataTensor(func(*args, **(kwargs or {})), metadata=metadatas[0])


def test_a_wrapper_of_the_notes():
    m = MetadataTensor([[1, 2], [3, 4]], metadata={"owner": "Ministry of Silly Walks"})
    t = weft.tensor([[1, 2], [1, 2]])
    assert weft.add(t, m)._t.tolist() == [[2, 4], [4, 6]]
    assert weft.mul(t, m)._t.tolist() == [[1, 4], [3, 8]]
    assert weft.nn.functional.linear(t, t, m)._metadata == m._metadata  # an optional tensor goes by position


# --- objects of any class -------------------------------------------------------------------------------------------


KEYWORDS = {
    "torch.sum": {"dim": 1},
    "torch.nn.functional.layer_norm": {"weight": None, "bias": None, "eps": 1e-5},
    "torch.nn.functional.relu": {"inplace": False},
}
"""Arguments by keyword: those that are written so, and, in `nn.functional`, all that have defaults."""


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda a, t: weft.add(a, 1), "torch.add"),
        (lambda a, t: weft.add(t, a), "torch.add"),
        (lambda a, t: t.add(a), "torch.Tensor.add"),
        (lambda a, t: t.add_(a), "torch.Tensor.add_"),
        (lambda a, t: t + a, "torch.Tensor.add"),
        (lambda a, t: t**a, "torch.Tensor.__pow__"),
        (lambda a, t: t[a], "torch.Tensor.__getitem__"),
        (lambda a, t: t.to(a), "torch.Tensor.to"),
        (lambda a, t: weft.ones(a), "torch.ones"),
        (lambda a, t: weft.cat([t, a]), "torch.cat"),
        (lambda a, t: weft.stack((a,)), "torch.stack"),
        (lambda a, t: weft.sum(a, dim=1), "torch.sum"),
        (lambda a, t: weft.einsum("i->", a), "torch.einsum"),
        (lambda a, t: weft.where(t > 0, a, t), "torch.where"),
        (lambda a, t: weft.nn.functional.layer_norm(a, (2,)), "torch.nn.functional.layer_norm"),
        (lambda a, t: weft.nn.functional.relu(a), "torch.nn.functional.relu"),
        (lambda a, t: weft.linalg.norm(a), "torch.linalg.norm"),
        (lambda a, t: weft.fft.fft(a), "torch.fft.fft"),
        (lambda a, t: weft.special.expm1(a), "torch.special.expm1"),
        (lambda a, t: weft.nn.init.uniform_(a), "torch.nn.init.uniform_"),
    ],
)
def test_an_object_is_asked_for_every_function(call, name):
    a, t = Recorder(), weft.ones(2)
    func, types, args, kwargs = call(a, t)
    assert resolve_name(func) == name
    assert types == (Recorder,)
    assert any(x is a for x in (*args, *(args[0] if isinstance(args[0], list | tuple) else ())))
    assert kwargs == KEYWORDS.get(name, {})


def test_an_assignment_to_elements_asks():
    class Counter(Recorder):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls += func is Tensor.__setitem__

    weft.ones(2)[0] = Counter()
    weft.ones(2)[Counter()] = 1
    assert Counter.calls == 2


def test_operators_that_nobody_has_are_left_to_python():
    class Mute:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

        def __radd__(self, other):
            return "added"

    assert weft.ones(1) + Mute() == "added"
    with pytest.raises(TypeError, match="unsupported operand"):
        weft.ones(1) - Mute()


def test_tensors_are_not_made_of_objects_that_override():
    with pytest.raises(RuntimeError, match="Could not infer dtype of Recorder"):
        weft.tensor(Recorder())


@pytest.mark.filterwarnings("ignore")  # some functions warn of their defaults first
@pytest.mark.parametrize("place", [weft, weft.nn.functional, weft.linalg, weft.fft, weft.special], ids=str)
def test_every_function_can_be_overridden(place):
    missing = []
    reads_nothing = {"alpha_dropout", "chain_matmul", "is_distributed", "pin_memory", "resolve_conj", "resolve_neg"}
    for make in (Recorder, lambda: weft.ones(2).as_subclass(Silent)):
        for function in get_overridable_functions()[place]:
            args, kwargs = [], {}
            for p in inspect.signature(function).parameters.values():
                if p.name == "_more":  # for the order of arguments that old programs have
                    continue
                if p.kind is p.VAR_POSITIONAL or (p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD):
                    args.append([make()] if "Sequence[Tensor]" in str(p.annotation) else make())
                elif p.default is p.empty and p.kind is p.KEYWORD_ONLY:
                    kwargs[p.name] = 1
            answer = function(*args, **kwargs)
            if function not in (answer, answer[0] if isinstance(answer, tuple) else None):
                missing.append(function.__name__)
    assert {*missing} <= reads_nothing


# --- subclasses of Tensor -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + 1, lambda x: 1 - x, lambda x: weft.ones(2) * x, lambda x: x.sum(), lambda x: weft.stack([x, x]),
        lambda x: x[0], lambda x: x.T, lambda x: x.clone(), lambda x: weft.nn.functional.relu(x), lambda x: x.detach(),
        lambda x: x.add_(1), lambda x: x.max(0).values, lambda x: x.split(1)[0], lambda x: [*x][1], lambda x: x.data,
        lambda x: copy.copy(x), lambda x: copy.deepcopy(x), lambda x: pickle.loads(pickle.dumps(x)),
        lambda x: weft.zeros_like(x), lambda x: x.sin().requires_grad_(),
    ],
)  # fmt: skip
def test_results_keep_the_type(call):
    assert type(call(weft.ones(2).as_subclass(Plain))) is Plain


def test_the_narrower_class_wins_and_strangers_refuse():
    plain, narrow, other = (weft.ones(1).as_subclass(kind) for kind in (Plain, Narrow, Other))
    assert type(plain + narrow) is type(narrow + plain) is Narrow
    with pytest.raises(TypeError, match=r"types that implement __torch_function__: \[<class .*Plain'>, <class .*Other"):
        weft.add(plain, other)


def test_subclasses_come_before_their_bases():
    order = []

    class Base:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            order.append(cls.__name__)
            return NotImplemented

    class Derived(Base):
        pass

    class Stranger(Base):
        pass

    with pytest.raises(TypeError):
        weft.cat([Base(), Stranger(), Derived(), Base()])
    assert order == ["Stranger", "Derived", "Base"]


def test_the_calls_are_those_of_the_user():
    x = logged(1.0, 2.0)
    weft.nn.functional.cosine_similarity(x, x, dim=0)  # composed of many functions
    x.sum(0, keepdim=True)
    x.grad, x.shape
    x.grad = None
    for _ in x:
        pass
    assert names() == [
        "torch.nn.functional.cosine_similarity", "torch.Tensor.sum", "torch.Tensor.grad.__get__",
        "torch.Tensor.shape.__get__", "torch.Tensor.grad.__set__", "torch.Tensor.dim", "torch.Tensor.unbind",
    ]  # fmt: skip
    assert Logged.log[1][1:] == ((x, 0), {"keepdim": True})


def test_methods_of_a_subclass_reach_those_of_tensor():
    class Doubled(Tensor):
        @property
        def shape(self):
            return super().shape * 2

        def sum(self, *args):
            return super().sum(*args) * 2

    x = weft.ones(3).as_subclass(Doubled)
    assert x.shape == (3, 3)
    assert x.sum().item() == 6
    assert type(x.sum()) is Doubled


def test_attributes_and_constructors_of_subclasses():
    class Tagged(Tensor):
        def __new__(cls, x, tag):
            return super().__new__(cls, x)

        def __init__(self, x, tag):
            self.tag = tag

    x = Tagged([1.0, 2.0], "first")
    assert (x.tag, x.tolist(), type(x * 2)) == ("first", [1, 2], Tagged)
    assert copy.deepcopy(x).tag == "first"
    made = Tensor._make_subclass(Plain, weft.ones(2), True)
    assert (type(made), made.is_leaf, made.requires_grad) == (Plain, True, True)
    with pytest.raises(TypeError, match=r"^_make_wrapper_subclass\(Plain\): "):
        Tensor._make_wrapper_subclass(Plain, (2,))


def test_gradients_flow_through_subclasses():
    x = weft.tensor([1.0, 2.0]).as_subclass(Plain).detach().requires_grad_()
    loss = (x * x).sum()
    assert type(loss) is Plain
    loss.backward()
    assert x.grad.tolist() == [2, 4]
    assert x.grad is x.grad


def test_parameters_of_an_overriding_class_are_trained():
    class Weight(weft.nn.Parameter):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls += func is weft.nn.functional.linear
            with weft._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    layer = weft.nn.Linear(2, 1, bias=False)
    layer.weight = Weight(weft.ones(1, 2))
    optimizer = weft.optim.SGD(layer.parameters(), lr=0.5)
    out = layer(weft.ones(1, 2))
    out.sum().backward()
    optimizer.step()
    assert (Weight.calls, type(out), layer.weight.tolist()) == (1, Tensor, [[0.5, 0.5]])


def test_parameters_override_nothing_by_default():
    class Mine(weft.nn.Parameter):
        pass

    class Off(Plain):
        __torch_function__ = weft._C._disabled_torch_function_impl

    assert type(Mine(weft.ones(1)) + 1) is Tensor
    assert type(weft.ones(1).as_subclass(Off) + 1) is Tensor


def test_the_override_of_classes_that_override_nothing_calls_the_function():
    class Through(Plain):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return weft.nn.Parameter.__torch_function__(func, types, args, kwargs)

    result = weft.add(weft.ones(2).as_subclass(Through), 1, alpha=2)
    assert (type(result), result.tolist()) == (Tensor, [3, 3])


def test_overriding_can_be_switched_off():
    x = weft.ones(2).as_subclass(Plain)
    with weft._C.DisableTorchFunctionSubclass():
        assert type(x + 1) is type(weft.sum(x)) is type(x.T) is Tensor
        assert not weft._C._is_torch_function_enabled()
        with weft._C._EnableTorchFunction():
            assert type(x + 1) is Plain
    assert type(x + 1) is Plain
    assert type(x.as_subclass(Tensor)) is Tensor


def test_a_subclass_may_look_up_attributes_itself():
    class Delegating(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func

        def __getattr__(self, name):
            return getattr(weft.zeros(1), name)

    x = weft.ones(1).as_subclass(Delegating)
    assert (x + 1, weft.sin(x), weft.ones(1) @ x) == (Tensor.add, weft.sin, Tensor.matmul)


def test_an_error_of_the_override_is_the_users():
    class Broken(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise AttributeError("mine")

    x = weft.ones(1).as_subclass(Broken)
    for call in (lambda: x + 1, lambda: weft.sin(x), lambda: weft.nn.functional.gelu(x), lambda: x.shape):
        with pytest.raises(AttributeError, match=r"^mine$"):
            call()


def test_what_is_no_argument_is_not_asked():
    x = weft.ones(2, requires_grad=True).as_subclass(Logged).detach().requires_grad_()
    loss = weft.ones(2) @ x
    plain = loss.as_subclass(Tensor)
    Logged.log.clear()
    plain.backward()  # which reads the leaf
    assert names() == []
    assert x.grad.tolist() == [1, 1]


OPERATORS = {
    "torch.Tensor.add": operator.add, "torch.Tensor.sub": operator.sub, "torch.Tensor.mul": operator.mul,
    "torch.Tensor.div": operator.truediv, "torch.Tensor.__floordiv__": operator.floordiv,
    "torch.Tensor.remainder": operator.mod, "torch.Tensor.__pow__": operator.pow,
    "torch.Tensor.matmul": operator.matmul, "torch.Tensor.__eq__": operator.eq,
    "torch.Tensor.ne": operator.ne, "torch.Tensor.lt": operator.lt,
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_the_methods_behind_them(name):
    x, y = logged(1.0, 2.0), weft.ones(2)
    OPERATORS[name](x, y)
    assert names() == [name]
    assert Logged.log[0][1] == (x, y) or name == "torch.Tensor.__eq__"
