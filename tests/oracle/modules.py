"""Modules of PyTorch's module database, built in both frameworks and observed alike. Needs torch."""

from __future__ import annotations

import builtins
import copy
import os
import pickle
import random
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_modules import ErrorModuleInput, FunctionInput, ModuleErrorEnum, ModuleInfo
from torch.testing._internal.common_modules import module_db as _DATABASE

import weft
from tests.nn.refusals import described
from tests.oracle.arrays import to_numpy
from tests.oracle.cases import Case, cotangent
from tests.oracle.compare import arrays_differ
from tests.oracle.known import WIDER, reason_for
from tests.oracle.replay import Result
from weft.errors import ElementError

DTYPES = ("float32", "float64")
MODES = {True: "training", False: "evaluation"}

_TWICE = 1  # samples of which second gradients are taken
_AT_MOST_TWICE = 300  # elements of their leaves


def entries() -> dict[str, ModuleInfo]:
    """The database's entries by name."""
    return {entry.name: entry for entry in _DATABASE}


def counterpart(entry: ModuleInfo) -> Any:
    """Weft's class of an entry's name; None where there is none."""
    return getattr(weft.nn, entry.module_cls.__name__, None)


# --- from one framework to the other --------------------------------------------------------------------------


class Unconvertible(Exception):
    """An argument that cannot be made in Weft."""


_NAMESPACES = (
    (torch.nn.functional, weft.nn.functional),
    (torch.nn, weft.nn),
    (torch, weft),
    (torch.nn.modules.linear, weft.nn._attention),
)


def _named(x: Any) -> Any:
    """Weft's object of the same name, for a function, class, dtype or layout of PyTorch's."""
    name = str(x).removeprefix("torch.") if isinstance(x, torch.dtype | torch.layout) else x.__name__
    for there, here in _NAMESPACES:
        if getattr(there, name, None) is x and hasattr(here, name):
            return getattr(here, name)
    raise Unconvertible(name)


def _module(module: torch.nn.Module) -> Any:
    """A module of arguments alone, such as an activation or one that another is made of."""
    kind = _named(type(module))
    made = kind.__new__(kind)
    weft.nn.Module.__init__(made)
    for name in vars(module).keys() - vars(torch.nn.Module()).keys():
        setattr(made, name, converted(vars(module)[name]))
    made.train(module.training)
    for name, child in module._modules.items():
        made.add_module(name, None if child is None else _module(child))
    for name, parameter in module._parameters.items():
        made.register_parameter(name, None if parameter is None else weft.nn.Parameter(converted(parameter.detach())))
    for name, buffer in module._buffers.items():
        made.register_buffer(name, None if buffer is None else converted(buffer))
    return made


def converted(x: Any, memo: dict[int, Any] | None = None) -> Any:
    """An argument of PyTorch's as one of Weft's; objects that are one and the same stay so."""
    memo = {} if memo is None else memo
    inner: Callable[[Any], Any] = partial(converted, memo=memo)
    if id(x) in memo:
        return memo[id(x)]
    match x:
        case torch.Tensor():
            memo[id(x)] = weft.tensor(to_numpy(x)).requires_grad_(x.requires_grad)
            return memo[id(x)]
        case torch.nn.Module():
            return _module(x)
        case tuple() if hasattr(x, "_fields"):
            return getattr(weft.nn.utils.rnn, type(x).__name__)(*map(inner, x))
        case tuple() | list():
            return type(x)(map(inner, x)) if type(x) in (tuple, list) else tuple(x)
        case dict():
            return {key: inner(value) for key, value in x.items()}
        case torch.device():
            return str(x)
        case None | bool() | int() | float() | complex() | str():
            return x
    if is_dataclass(x) and not isinstance(x, type):
        return _named(type(x))(**{field.name: inner(getattr(x, field.name)) for field in fields(x)})
    return _named(x)


def _leaves(x: Any) -> Iterator[Any]:
    """The tensors in a tree of arguments or results, in order."""
    match x:
        case tuple() | list():
            for part in x:
                yield from _leaves(part)
        case dict():
            yield from _leaves(list(x.values()))
        case torch.Tensor() | weft.Tensor():
            yield x


_SECOND = "second gradient"
_NO_SECOND = (NotImplementedError, RuntimeError)  # PyTorch has no second derivative of some losses

# --- observing ------------------------------------------------------------------------------------------------


@dataclass
class Call:
    """The arguments of one call, as leaves in either framework."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> list[Any]:
        """Each tensor once."""
        return list({id(x): x for x in _leaves([self.args, self.kwargs])}.values())

    def copied(self) -> Call:
        """The same with clones of the floating tensors, which a module may write to."""
        clones = {id(x): x.clone() for x in self.tensors() if x.is_floating_point()}

        def replaced(x: Any) -> Any:
            match x:
                case tuple() if hasattr(x, "_fields"):
                    return type(x)(*map(replaced, x))
                case tuple() | list():
                    return type(x)(map(replaced, x))
            return clones.get(id(x), x)

        return Call(tuple(map(replaced, self.args)), {key: replaced(value) for key, value in self.kwargs.items()})


def call_of(given: FunctionInput) -> Call:
    """PyTorch's call, its tensors made leaves."""
    memo: dict[int, Any] = {}

    def leaf(x: Any) -> Any:
        match x:
            case torch.Tensor():
                return memo.setdefault(id(x), x.detach().clone().requires_grad_(x.requires_grad))
            case tuple() if hasattr(x, "_fields"):
                return type(x)(*map(leaf, x))
            case tuple() | list():
                return type(x)(map(leaf, x))
        return x

    return Call(tuple(map(leaf, given.args)), {key: leaf(value) for key, value in given.kwargs.items()})


def outputs_of(module: Any, call: Call) -> dict[str, Any]:
    """The tensors that a call returns, by name."""
    passed = call.copied()
    return {f"output {at}": x for at, x in enumerate(_leaves(module(*passed.args, **passed.kwargs)))}


def observe(lib: Any, module: Any, call: Call, twice: bool) -> dict[str, Any]:
    """What one call gives in a framework: outputs, gradients, second gradients, and buffers, by name."""
    found = outputs_of(module, call)
    outputs = list(found.values())
    leaves = {f"input {at}": x for at, x in enumerate(call.tensors()) if x.requires_grad}
    leaves |= {name: x for name, x in module.named_parameters() if x.requires_grad}
    first = _gradients(lib, outputs, leaves, twice)
    found |= {f"gradient of {name}": x for name, x in first.items()}
    if twice:
        with suppress(*_NO_SECOND):
            second = _gradients(lib, list(first.values()), leaves, False)
            found |= {f"{_SECOND} of {name}": x for name, x in second.items()}
    found |= {f"buffer {name}": x for name, x in module.named_buffers()}
    return found


def _gradients(lib: Any, outputs: list[Any], leaves: dict[str, Any], create_graph: bool) -> dict[str, Any]:
    """Gradients of the weighted outputs; zeros where none flows, as frameworks may leave those out."""
    flowing = [x for x in outputs if x.requires_grad]
    if not flowing or not leaves:
        return {}
    weights = [lib.tensor(cotangent(tuple(x.shape), x.is_complex()), dtype=x.dtype) for x in flowing]
    found = lib.autograd.grad(flowing, list(leaves.values()), weights, allow_unused=True, create_graph=create_graph)
    return {
        name: lib.zeros_like(leaf) if grad is None else grad
        for (name, leaf), grad in zip(leaves.items(), found, strict=True)
    }


def _array(x: torch.Tensor) -> np.ndarray:
    return to_numpy(torch.zeros(x.shape, dtype=x.dtype) if x._is_zerotensor() else x)


def first_difference(wanted: dict[str, Any], found: dict[str, Any], wider: float, values: bool) -> str:
    """What differs between two observations; shapes and dtypes alone unless `values`."""
    for name in dict.fromkeys([*wanted, *found]):
        if name.startswith(_SECOND) and (name not in wanted or name not in found):
            continue  # what is constant, or what PyTorch cannot differentiate twice
        if name not in found or name not in wanted:
            return f"{name} is {'missing' if name in wanted else 'not in PyTorch'}"
        a, b = _array(wanted[name]), found[name].detach().numpy()
        if not values:
            a, b = np.zeros_like(a), np.zeros_like(b)
        fault = arrays_differ(a, b, wider)
        if fault:
            return f"{name} {fault}"
    return ""


# --- building -------------------------------------------------------------------------------------------------


@contextmanager
def quietly(seed: int = 0) -> Iterator[None]:
    """Warnings are not compared; every draw starts anew."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass
class Twins:
    """One module in both frameworks, with the same state, and the same call of it."""

    theirs: torch.nn.Module
    ours: Any
    call: Call
    our_call: Call

    @property
    def is_random(self) -> bool:
        """Whether the values of a call are drawn."""
        for module in self.theirs.modules():
            is_dropout = isinstance(module, torch.nn.modules.dropout._DropoutNd)
            p = module.p if is_dropout else getattr(module, "dropout", 0.0)
            if module.training and isinstance(p, float) and p:
                return True
        return False


def build(entry: ModuleInfo, sample: Any, dtype: str, training: bool) -> Twins:
    """The module of a sample, made by both frameworks."""
    made, called = call_of(sample.constructor_input), call_of(sample.forward_input)
    theirs = entry.module_cls(*made.args, **made.kwargs)
    ours = counterpart(entry)(*converted(made.args), **converted(made.kwargs))
    memo: dict[int, Any] = {}
    twins = Twins(
        theirs.to(getattr(torch, dtype)).train(training),
        ours.to(getattr(weft, dtype)).train(training),
        called,
        Call(converted(called.args, memo), converted(called.kwargs, memo)),
    )
    if entry.is_lazy:  # the first call decides on shapes
        theirs(*called.args, **called.kwargs)
        ours(*twins.our_call.args, **twins.our_call.kwargs)
    return twins


def difference_of_state(twins: Twins) -> str:
    """What differs between freshly made modules besides the numbers that were drawn. Copies the state."""
    theirs, ours = twins.theirs.state_dict(), twins.ours.state_dict()
    described = [
        [(key, str(x.dtype).removeprefix("torch."), tuple(x.shape)) for key, x in state.items()]
        for state in (theirs, ours)
    ]
    if described[0] != described[1]:
        return f"the state dict holds {described[1]}, not {described[0]}"
    if repr(twins.theirs) != repr(twins.ours):
        return f"repr is {twins.ours!r}, not {twins.theirs!r}"
    fault = _attributes_differ(twins)
    twins.ours.load_state_dict({key: weft.tensor(to_numpy(x)) for key, x in theirs.items()})
    return fault


_INTERNAL = ("activation_relu_or_gelu", "use_nested_tensor")  # what PyTorch's fast path decides by
_PLAIN = (bool, int, float, str, tuple, list, type(None))


def _attributes_differ(twins: Twins) -> str:
    """The first attribute that users may read and that is missing or another, such as `kernel_size`."""
    for (path, theirs), (_, ours) in zip(twins.theirs.named_modules(), twins.ours.named_modules(), strict=True):
        for name, value in vars(theirs).items():
            if name.startswith("_") or name in _INTERNAL or not isinstance(value, _PLAIN):
                continue
            if getattr(ours, name, "missing") != value:
                return f"attribute {path}.{name} is {getattr(ours, name, 'missing')!r}, not {value!r}"
    return ""


# --- checking -------------------------------------------------------------------------------------------------


def _chosen(samples: list[Any], limit: int | None) -> list[Any]:
    """`limit` samples from the whole list."""
    if not limit or len(samples) <= limit:
        return samples
    return [samples[at * len(samples) // limit] for at in range(limit)]


_LIMIT = int(os.environ.get("WEFT_ORACLE_SAMPLES", "3")) or None  # of each dtype and mode; 0 takes all
_LARGE = ("Attention", "Transformer", "RNN", "GRU", "LSTM")  # modules of which one sample takes long to compile


def check(entry: ModuleInfo) -> Iterator[Result]:
    """Build and call the samples of an entry, and compare."""
    limit = 1 if _LIMIT and any(part in entry.name for part in _LARGE) else _LIMIT
    for dtype in DTYPES:
        if getattr(torch, dtype) not in entry.supported_dtypes("cpu"):
            continue
        for training in (True, False) if entry.train_and_eval_differ else (True,):
            with quietly():
                given = entry.module_inputs_func(
                    entry, device="cpu", dtype=getattr(torch, dtype), requires_grad=True, training=training
                )
                samples = [sample for sample in given if sample.forward_input is not None]
                attempts = [
                    _attempt(entry, sample, dtype, training, at < _TWICE)
                    for at, sample in enumerate(_chosen(samples, limit))
                ]
                yield from [_compared(entry, attempt) for attempt in attempts]


@dataclass
class _Attempt:
    """One sample's observations, which are computed together with those of the other samples."""

    case: Case
    fault: str = ""
    values: bool = True
    theirs: dict[str, Any] | None = None
    ours: dict[str, Any] | None = None


def _attempt(entry: ModuleInfo, sample: Any, dtype: str, training: bool, twice: bool) -> _Attempt:
    text = f"{_shown(sample.constructor_input)}{_shown(sample.forward_input)}"
    made = _Attempt(Case(entry.name, MODES[training], entry.name, dtype, args=text, gradients=[None]))
    try:
        twins = build(entry, sample, dtype, training)
        made.fault = difference_of_state(twins)
        if made.fault:
            return made
        made.values = not twins.is_random
        small = sum(x.numel() for x in (*twins.call.tensors(), *twins.theirs.parameters())) <= _AT_MOST_TWICE
        twice = twice and dtype == "float64" and small and entry.supports_gradgrad and made.values
        copies = _copies(twins.ours) if dtype == "float32" else {}
        made.theirs = observe(torch, twins.theirs, twins.call, twice)
        made.ours = observe(weft, twins.ours, twins.our_call, twice)
        for how, copied in copies.items():
            ours = outputs_of(copied, twins.our_call)
            made.theirs |= {f"{name} when {how}": made.theirs[name] for name in ours}
            made.ours |= {f"{name} when {how}": x for name, x in ours.items()}
    except Exception as error:  # whatever a faulty module raises is part of the report
        made.fault = f"raises {type(error).__name__}: {error}"
    return made


def _copies(module: Any) -> dict[str, Any]:
    """What should do the same as a module."""
    return {"pickled": pickle.loads(pickle.dumps(module)), "copied": copy.deepcopy(module)}


def _compared(entry: ModuleInfo, attempt: _Attempt) -> Result:
    fault = attempt.fault
    if not fault and attempt.theirs is not None and attempt.ours is not None:
        try:
            fault = first_difference(attempt.theirs, attempt.ours, WIDER.get(entry.name, 1), attempt.values)
        except Exception as error:  # found only where the values are computed
            fault = f"computing raises {type(error).__name__}: {str(error)[:300]}"
    return Result(attempt.case, fault, reason_for(attempt.case, fault) if fault else "")


def _shown(given: FunctionInput) -> str:
    parts = [*map(_brief, given.args), *(f"{key}={_brief(value)}" for key, value in given.kwargs.items())]
    return f"({', '.join(parts)})"


def _brief(x: Any) -> str:
    return f"Tensor{list(x.shape)}" if isinstance(x, torch.Tensor) else str(x)[:60]


# --- errors ---------------------------------------------------------------------------------------------------


def raised(call: Callable[[], Any]) -> Exception | None:
    """The exception of a call, with a value read."""
    try:
        for x in _leaves(call()):
            x.detach().numpy()
    except Exception as error:  # whatever it is, is compared
        return error
    return None


def texts_differ(theirs: Exception | None, ours: Exception | None) -> str:
    """What differs between two outcomes: the builtin class of the exception, or its text."""
    if theirs is None or ours is None:
        return "" if theirs is ours else f"raises {ours!r}, not {theirs!r}"
    kind, wanted = described(theirs)
    if not isinstance(ours, getattr(builtins, kind)):
        return f"raises {ours!r}, not {theirs!r}"
    found = described(ours)[1]
    is_deferred = isinstance(ours, ElementError)  # says which call it was, too
    same = wanted in found if is_deferred else wanted == found
    return "" if same else f"says {found!r}, not {wanted!r}"


def errors(entry: ModuleInfo) -> Iterable[ErrorModuleInput]:
    """The database's wrong calls of an entry, in float32."""
    with quietly():
        return list(
            entry.module_error_inputs_func(entry, device="cpu", dtype=torch.float32, requires_grad=False, training=True)
        )


def difference_of_errors(entry: ModuleInfo, wrong: ErrorModuleInput) -> str:
    """What differs when both frameworks refuse a call."""
    made = call_of(wrong.module_error_input.constructor_input)

    def theirs() -> Any:
        return entry.module_cls(*made.args, **made.kwargs)

    def ours() -> Any:
        return counterpart(entry)(*converted(made.args), **converted(made.kwargs))

    with quietly():
        if wrong.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
            return texts_differ(raised(theirs), raised(ours))
        called = call_of(wrong.module_error_input.forward_input)
        memo: dict[int, Any] = {}
        our_args, our_kwargs = converted(called.args, memo), converted(called.kwargs, memo)
        return texts_differ(
            raised(lambda: theirs()(*called.args, **called.kwargs)), raised(lambda: ours()(*our_args, **our_kwargs))
        )
