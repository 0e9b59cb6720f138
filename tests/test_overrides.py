"""`weft.overrides`: functions that can be overridden, lists of them, and modes. Parts restate PyTorch's own tests."""

from __future__ import annotations

import inspect
import threading

import pytest

import weft
from weft import Tensor, overrides
from weft.overrides import BaseTorchFunctionMode, TorchFunctionMode, resolve_name


class Log(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(resolve_name(func))
        return func(*args, **(kwargs or {}))


class Answer(TorchFunctionMode):
    def __init__(self, answer):
        self.answer = answer

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.answer


class Sub(Tensor):
    pass


# --- functions that can be overridden -------------------------------------------------------------------------------


def scaled(a, b):
    if overrides.has_torch_function((a, b)):
        return overrides.handle_torch_function(scaled, (a, b), a, b)
    return a * b + 1


@overrides.wrap_torch_function(lambda a: (a,))
def shifted(a):
    """Adds nothing."""
    return a + 0


def test_functions_of_users_can_be_overridden():
    x = weft.ones(1).as_subclass(Sub)
    assert type(scaled(x, 2)) is type(shifted(x)) is Sub
    assert scaled(weft.ones(1), 2).item() == 3
    assert shifted.__doc__ == "Adds nothing."
    with Log() as log:
        shifted(weft.ones(1))
    assert log.names == ["torch.ones", None]


def test_who_overrides():
    x, parameter = weft.ones(1), weft.nn.Parameter(weft.ones(1))
    assert not overrides.has_torch_function((x, parameter, 1, None))
    assert overrides.has_torch_function_unary(x.as_subclass(Sub))
    assert overrides.has_torch_function_variadic(x, x.as_subclass(Sub))
    with BaseTorchFunctionMode():
        assert overrides.has_torch_function_variadic(1, 2)
    assert all(overrides.is_tensor_like(a) for a in (x, x.as_subclass(Sub), Log()))
    assert not any(overrides.is_tensor_like(a) for a in (6, None, x.shape))


def test_nobody_answers():
    class Mute:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match=r"^no implementation found for '.*scaled' on types .*: \[<class .*Mute'>\]$"):
        scaled(Mute(), 1)
    with Answer(NotImplemented), pytest.raises(TypeError, match=r" nor in mode <.*Answer object"):
        scaled(1, 2)


def test_redispatch_skips_one_question():
    class Logged(Tensor):
        names = []  # noqa: RUF012

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.names.append(func.__name__)
            return overrides.redispatch_function(func, types, args, kwargs)

    result = scaled(Logged([3.0]), Logged([4.0]))
    assert Logged.names == ["scaled", "mul"]  # the product is a plain tensor
    assert (type(result), result.tolist()) == (Tensor, [13])


def test_redispatch_within_a_mode():
    class Logging(TorchFunctionMode):
        def __init__(self):
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(func.__name__)
            with self:
                return overrides.redispatch_function(func, types, args, kwargs)

    a = weft.ones(1)
    with Logging() as mode:
        scaled(a, a)
    assert mode.names == ["scaled", "mul", "add"]


# --- lists ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (weft.add, "torch.add"),
        (Tensor.add, "torch.Tensor.add"),
        (Tensor.__getitem__, "torch.Tensor.__getitem__"),
        (Tensor.shape.__get__, "torch.Tensor.shape.__get__"),
        (Tensor.grad.__set__, "torch.Tensor.grad.__set__"),
        (weft.nn.functional.relu, "torch.nn.functional.relu"),
        (weft.linalg.norm, "torch.linalg.norm"),
        (weft.fft.fft, "torch.fft.fft"),
        (weft.special.erf, "torch.special.erf"),
        (weft.nn.init.uniform_, "torch.nn.init.uniform_"),
        (weft.zeros, "torch.zeros"),
        (print, None),
        (slice(1), None),
    ],
)
def test_functions_have_names(function, name):
    assert resolve_name(function) == name


def test_functions_methods_and_properties_are_told_apart():
    assert overrides.is_tensor_method_or_property(Tensor.add)
    assert overrides.is_tensor_method_or_property(Tensor.T.__get__)
    assert not overrides.is_tensor_method_or_property(weft.add)


def test_lists_of_functions():
    lists, ignored = overrides.get_overridable_functions(), overrides.get_ignored_functions()
    assert weft.add in lists[weft]
    assert Tensor.add in lists[Tensor]
    assert lists[Tensor.shape] == [Tensor.shape.__get__]
    assert {weft.zeros, weft.tensor, Tensor.as_subclass, Tensor.__hash__} <= ignored
    assert not ignored.intersection(f for functions in lists.values() for f in functions)
    assert len(lists[weft]) > 400


def test_stand_ins_have_the_same_parameters():
    stand_ins = overrides.get_testing_overrides()
    assert inspect.signature(stand_ins[weft.add]) == inspect.signature(weft.add)
    assert stand_ins[weft.add](1, 2) == stand_ins[Tensor.T.__get__](1) == -1
    with pytest.raises(TypeError):
        stand_ins[weft.add](1)


# --- modes ----------------------------------------------------------------------------------------------------------


def test_a_mode_sees_what_the_program_calls():
    x = weft.ones(2, requires_grad=True)
    with Log() as log:
        y = weft.rand(2) * 2
        (y + weft.tensor([1.0, 2.0])).sum().item()
        weft.nn.functional.dropout(weft.nn.functional.layer_norm(x, (2,)), 0.5)
        with weft.no_grad():
            x[0], x.T, x.detach()
        x.mul(3).sum().backward()
    weft.ones(1)
    assert log.names == [
        "torch.rand", "torch.Tensor.mul", "torch.tensor", "torch.Tensor.add", "torch.Tensor.sum", "torch.Tensor.item",
        "torch.nn.functional.layer_norm", "torch.nn.functional.dropout", "torch.Tensor.__getitem__",
        "torch.Tensor.T.__get__", "torch.Tensor.detach", "torch.Tensor.mul", "torch.Tensor.sum",
        "torch.Tensor.backward",
    ]  # fmt: skip


def test_a_mode_answers_for_functions():
    with Answer(-1):
        assert weft.randn(3) == weft.tensor([1]) == weft.add(1, 2) == weft.nn.init.zeros_(weft) == -1
    assert weft.ones(1).tolist() == [1]


def test_a_mode_changes_arguments():
    class InDouble(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if func in (weft.ones, weft.rand):
                kwargs.setdefault("dtype", weft.float64)
            return func(*args, **kwargs)

    with InDouble():
        assert weft.ones(1).dtype is weft.rand(1).dtype is weft.float64
        assert weft.ones(1, dtype=weft.float32).dtype is weft.float32
    assert weft.ones(1).dtype is weft.float32


def test_random_numbers_are_drawn_once():
    weft.manual_seed(0)
    expected = weft.rand(3).tolist(), weft.rand(3).tolist()
    weft.manual_seed(0)
    with Log():
        found = weft.rand(3).tolist(), weft.rand(3).tolist()
    assert found == expected


def test_modes_are_asked_from_inside_out_and_before_classes():
    order = []

    class Named(TorchFunctionMode):
        def __init__(self, name):
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            order.append((self.name, types))
            assert overrides._get_current_function_mode() is not self
            return func(*args, **(kwargs or {}))

    class Last(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            order.append(("class", types))
            return super().__torch_function__(func, types, args, kwargs)

    x = weft.ones(1).as_subclass(Last)
    with Named("outer") as outer, Named("inner") as inner:
        assert overrides._get_current_function_mode_stack() == [outer, inner]
        assert type(x + 1) is Last
    assert order == [("inner", (Last,)), ("outer", (Last,)), ("class", (Last,))]
    assert overrides._get_current_function_mode() is None


def test_not_implemented_passes_on_to_classes():
    x = weft.ones(1).as_subclass(Sub)
    with Answer(NotImplemented), pytest.raises(TypeError, match=r"no implementation found for 'torch\.ones'"):
        weft.ones(1)

    class Only(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return -1

    with Answer(NotImplemented):
        assert weft.add(x.as_subclass(Only), 1) == -1


def test_modes_are_switched_off_and_popped():
    with Log() as log:
        with weft._C.DisableTorchFunction():
            weft.ones(1)
        with overrides._pop_mode_temporarily() as mode:
            weft.ones(1)
        with weft._C.DisableTorchFunctionSubclass():
            weft.ones(1)
    assert mode is log
    assert log.names == ["torch.ones"]


def test_a_mode_ends_with_its_block_and_stays_in_its_thread():
    with pytest.raises(ValueError, match="left"), Log():
        raise ValueError("left")
    assert overrides._get_current_function_mode() is None
    with Log() as log:
        thread = threading.Thread(target=weft.ones, args=(1,))
        thread.start()
        thread.join()
        weft.set_grad_enabled(False)
    assert log.names == []
    assert not weft.is_grad_enabled()  # a mode undoes nothing but itself
    weft.set_grad_enabled(True)


def test_a_mode_must_say_what_it_does():
    with TorchFunctionMode(), pytest.raises(NotImplementedError, match=r"^TorchFunctionMode must define __torch_func"):
        weft.ones(1)


def test_a_device_is_the_default_in_a_block():
    with weft.device("cpu") as device:
        assert weft.get_default_device() == device
        assert weft.ones(1).device == device
        with weft.device("xla"):
            assert weft.ones(1).device.type == "xla"
        assert weft.ones(1).device == device
