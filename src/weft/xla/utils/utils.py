"""`torch_xla.utils.utils`: what programs for the XLA device use besides, usually imported as `xu`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Generic, TypeVar

from weft._base.guards import is_list_or_tuple
from weft._base.types import AnyCallable, Arg, PyTree, Result
from weft.errors import SettingError, ShapeError
from weft.xla._flags import flag
from weft.xla._lazy_property import LazyProperty as LazyProperty
from weft.xla._nested import DataWrapper as DataWrapper
from weft.xla._nested import replaced, selected

if TYPE_CHECKING:
    from weft.xla._nested import Select

T = TypeVar("T")
Print = Callable[[str], object]


class SampleGenerator(Generic[T]):
    """Yields the same data `sample_count` times, in place of a loader. Each loop over it starts anew."""

    def __init__(self, data: T, sample_count: int) -> None:
        self._data = data
        self._sample_count = sample_count
        self._count = 0

    def __iter__(self) -> SampleGenerator[T]:
        return SampleGenerator(self._data, self._sample_count)

    def __len__(self) -> int:
        return self._sample_count

    def __next__(self) -> T:
        return self.next()

    def next(self) -> T:
        """The data once more; `StopIteration` after the last time."""
        if self._count >= self._sample_count:
            raise StopIteration
        self._count += 1
        return self._data


class FnDataGenerator:
    """Yields `count` pairs (data, func(data)) with `data = gen_tensor(batch_size, *dims)`. Each loop starts anew."""

    def __init__(
        self,
        func: AnyCallable,
        batch_size: int,
        gen_tensor: Callable[..., object],
        dims: Sequence[int] | None = None,
        count: int = 1,
    ) -> None:
        self._func = func
        self._batch_size = batch_size
        self._gen_tensor = gen_tensor
        self._dims = dims or [1]
        self._sample_count = count
        self._count = 0

    def __iter__(self) -> FnDataGenerator:
        return FnDataGenerator(self._func, self._batch_size, self._gen_tensor, self._dims, self._sample_count)

    def __len__(self) -> int:
        return self._sample_count

    def __next__(self) -> tuple[object, Result]:
        return self.next()

    def next(self) -> tuple[object, Result]:
        """One more pair; `StopIteration` after the last one."""
        if self._count >= self._sample_count:
            raise StopIteration
        self._count += 1
        data = self._gen_tensor(self._batch_size, *self._dims)
        return data, self._func(data)


# --- nested structures ---------------------------------------------------------------------------------------------


def as_list(t: Arg) -> Sequence[Arg]:
    """A list or tuple as it is, and anything else as a list with one entry."""
    return t if is_list_or_tuple(t) else [t]


def for_each_instance(value: PyTree, select_fn: Select, fn: Callable[[Arg], object]) -> None:
    """Call `fn` with each object in a nested structure that `select_fn` chooses, once."""
    for one in selected(value, select_fn):
        fn(one)


def for_each_instance_rewrite(value: PyTree, select_fn: Select, fn: Callable[[Arg], object]) -> PyTree:
    """A copy of a nested structure with `fn(x)` in place of each `x` that `select_fn` chooses."""
    return replaced(value, select_fn, lambda objects: map(fn, objects))


def shape(inputs: PyTree) -> list[int]:
    """The sizes of lists of equal lists: `[2, 3]` for two lists of three numbers."""
    if not is_list_or_tuple(inputs):
        return []
    shapes = [shape(part) for part in inputs]
    if any(one != shapes[0] for one in shapes):
        raise ShapeError(f"shape: the parts of a nested list must have equal sizes, got {shapes}")
    return [len(inputs), *(shapes[0] if shapes else [])]


def flatten_nested_tuple(inputs: PyTree) -> tuple[Arg, ...]:
    """The entries of lists and tuples in each other, in order."""
    if not is_list_or_tuple(inputs):
        return (inputs,)
    return tuple([entry for part in inputs for entry in flatten_nested_tuple(part)])


def list_copy_append(ilist: Iterable[T], item: T) -> list[T]:
    """A copy of a list with one more entry."""
    return [*ilist, item]


# --- environment, output and time ----------------------------------------------------------------------------------


def getenv_as(name: str, type: Callable[[str], object], defval: object = None) -> Arg:
    """An environment variable as a `type`, such as `int`; `defval` if it is not set.

    As `bool` it is false for `0`, `false`, `off` and `no`.
    """
    text = os.environ.get(name)
    if text is None:
        return defval
    if type is bool:
        return flag(name)
    try:
        return type(text)
    except ValueError:
        raise SettingError(f"{name}={text}: expected {getattr(type, '__name__', type)}") from None


def check_env_flag(name: str, default: str = "") -> bool:
    """Whether an environment variable, or else `default`, is `true` or a number above 0."""
    text = os.environ.get(name, default)
    return text == "true" or (text.isdigit() and int(text) > 0)


def eprint(*args: object, **kwargs: Arg) -> None:
    """Print on stderr."""
    print(*args, file=sys.stderr, **kwargs)


def null_print(*args: object, **kwargs: Arg) -> None:
    """Print nothing."""


def get_print_fn(debug: bool | None = None) -> Callable[..., None]:
    """`eprint` to debug, else `null_print`; by default the environment variable `DEBUG` says which."""
    return eprint if (getenv_as("DEBUG", bool, False) if debug is None else debug) else null_print


class TimedScope:
    """A block whose milliseconds are printed after `msg` at its end, unless it has called `set_error`.

    `printfn` prints; None stands for `get_print_fn()`.
    """

    def __init__(self, msg: str = "", printfn: Print | None = eprint) -> None:
        self._msg = msg
        self._print = get_print_fn() if printfn is None else printfn
        self._error: object = None
        self._start = 0.0

    def __enter__(self) -> TimedScope:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._error is None:
            self._print(f"{self._msg}{1000 * (time.perf_counter() - self._start):.3f}ms")

    def set_error(self, error: object) -> None:
        """Note that the block has failed, so that its time says nothing."""
        self._error = error


def timed(fn: Callable[[], T], msg: str = "", printfn: Print | None = eprint) -> T:
    """`fn()`, whose milliseconds are printed after `msg`."""
    with TimedScope(msg, printfn):
        return fn()


def parallel_work(num_workers: int, fn: Callable[..., T], *args: Arg) -> list[T]:
    """`[*map(fn, *args)]` in so many threads."""
    with ThreadPoolExecutor(num_workers) as pool:
        return [*pool.map(fn, *args)]
