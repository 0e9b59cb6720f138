"""Data pipes: PyTorch's older streams, which are composed by methods: `IterableWrapper(items).map(f).batch(8)`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import chain, islice
from typing import Any, ClassVar, TypeVar

from weft._base.types import AnyCallable, Arg
from weft.errors import LacksAttributeError, RegistrationError, ValueRangeError
from weft.utils.data.dataset import Dataset, IterableDataset

T = TypeVar("T", covariant=True)
Pipe = TypeVar("Pipe", bound=type)


class _Composable:
    """Pipes whose methods, beside their own, are the classes that `functional_datapipe` has registered."""

    functions: ClassVar[dict[str, AnyCallable]] = {}

    def __getattr__(self, attribute_name: str) -> Any:
        try:
            function = type(self).functions[attribute_name]
        except KeyError:
            raise LacksAttributeError(
                f"{type(self).__name__!r} object has no attribute {attribute_name!r}; the methods that compose pipes "
                f"are {', '.join(sorted(type(self).functions))}"
            ) from None

        def made(*args: Arg, **kwargs: Arg) -> Any:
            return function(self, *args, **kwargs)

        return made

    @classmethod
    def register_function(cls, function_name: str, function: AnyCallable) -> None:
        """Let a function, whose first argument is the pipe, be a method of all pipes of this kind."""
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(cls, function_name: str, cls_to_register: AnyCallable) -> None:
        """The same for a class; `RuntimeError` if there is a method of this name."""
        if function_name in cls.functions:
            raise RegistrationError(f"a data pipe has a method {function_name!r} already; choose another name")
        cls.functions[function_name] = cls_to_register

    def __repr__(self) -> str:
        return type(self).__qualname__


class IterDataPipe(_Composable, IterableDataset[T]):
    """A stream of samples that is made of others. A subclass defines `__iter__`."""

    functions: ClassVar[dict[str, AnyCallable]] = {}

    def reset(self) -> None:
        """Begin anew; a subclass that keeps a state overrides it."""


class MapDataPipe(_Composable, Dataset[T]):
    """Samples by index that are made of others. A subclass defines `__getitem__` and `__len__`."""

    functions: ClassVar[dict[str, AnyCallable]] = {}


class functional_datapipe:
    """A decorator of a class of pipes, which makes it a method of all pipes of its kind."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        del enable_df_api_tracing
        self.name = name

    def __call__(self, cls: Pipe) -> Pipe:
        kind = next((kind for kind in (IterDataPipe, MapDataPipe) if issubclass(cls, kind)), None)
        if kind is None:
            raise ValueRangeError(f"functional_datapipe: {cls.__name__} is no class of IterDataPipe or MapDataPipe")
        kind.register_datapipe_as_function(self.name, cls)
        return cls


class IterableWrapperIterDataPipe(IterDataPipe[Any]):
    """The items of an iterable."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        del deepcopy
        self.iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        yield from self.iterable

    def __len__(self) -> int:
        return _length(self.iterable)


class SequenceWrapperMapDataPipe(MapDataPipe[Any]):
    """The items of a sequence or mapping."""

    def __init__(self, sequence: Any, deepcopy: bool = True) -> None:
        del deepcopy
        self.sequence = sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


class _OfOne(IterDataPipe[Any]):
    """A pipe that is made of one other."""

    def __init__(self, datapipe: Iterable[Any]) -> None:
        self.datapipe = datapipe

    def __len__(self) -> int:
        return _length(self.datapipe)


def _length(pipe: Any) -> int:
    if not isinstance(pipe, Sized):
        raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length")
    return len(pipe)


@functional_datapipe("map")
class MapperIterDataPipe(_OfOne):
    """What a function gives of each sample."""

    def __init__(self, datapipe: Iterable[Any], fn: Callable[[Any], Any]) -> None:
        super().__init__(datapipe)
        self.fn = fn

    def __iter__(self) -> Iterator[Any]:
        return map(self.fn, self.datapipe)


@functional_datapipe("collate")
class CollatorIterDataPipe(MapperIterDataPipe):
    """What a function makes of each batch."""


@functional_datapipe("filter")
class FilterIterDataPipe(IterDataPipe[Any]):
    """The samples for which a function is true."""

    def __init__(self, datapipe: Iterable[Any], filter_fn: Callable[[Any], bool]) -> None:
        self.datapipe = datapipe
        self.filter_fn = filter_fn

    def __iter__(self) -> Iterator[Any]:
        return filter(self.filter_fn, self.datapipe)


@functional_datapipe("batch")
class BatcherIterDataPipe(_OfOne):
    """Lists of samples, or what `wrapper_class` makes of them."""

    def __init__(
        self,
        datapipe: Iterable[Any],
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: Callable[..., Any] = list,
    ) -> None:
        if batch_size <= 0:
            raise ValueRangeError(f"batch_size must be positive, got {batch_size}")
        super().__init__(datapipe)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.wrapper_class = wrapper_class

    def __iter__(self) -> Iterator[Any]:
        samples = iter(self.datapipe)
        while batch := list(islice(samples, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield self.wrapper_class(batch)

    def __len__(self) -> int:
        count = super().__len__()
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcherIterDataPipe(IterDataPipe[Any]):
    """The samples of batches."""

    def __init__(self, datapipe: Iterable[Any], unbatch_level: int = 1) -> None:
        self.datapipe = datapipe
        self.unbatch_level = unbatch_level

    def __iter__(self) -> Iterator[Any]:
        samples: Iterable[Any] = self.datapipe
        for _ in range(self.unbatch_level):
            samples = chain.from_iterable(samples)
        yield from samples


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(_OfOne):
    """The samples in an order that is drawn within a buffer."""

    def __init__(self, datapipe: Iterable[Any], *, buffer_size: int = 10_000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise ValueRangeError(f"buffer_size must be positive, got {buffer_size}")
        super().__init__(UnBatcherIterDataPipe(datapipe, unbatch_level) if unbatch_level else datapipe)
        self.buffer_size = buffer_size
        self._shuffle_enabled = True
        self._seed: int | None = None

    def set_shuffle(self, shuffle: bool = True) -> ShufflerIterDataPipe:
        """Switch it on or off."""
        self._shuffle_enabled = shuffle
        return self

    def set_seed(self, seed: int) -> ShufflerIterDataPipe:
        """Set the seed of the next pass; without one it is drawn by Python's `random`, which loaders seed."""
        self._seed = seed
        return self

    def __iter__(self) -> Iterator[Any]:
        if not self._shuffle_enabled:
            yield from self.datapipe
            return
        draw = random.Random(random.getrandbits(64) if self._seed is None else self._seed)
        self._seed = None
        buffer: list[Any] = []
        for sample in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(sample)
                continue
            at = draw.randrange(len(buffer))
            drawn, buffer[at] = buffer[at], sample
            yield drawn
        draw.shuffle(buffer)
        yield from buffer


@functional_datapipe("sharding_filter")
class ShardingFilterIterDataPipe(_OfOne):
    """Each n-th sample, once `apply_sharding` has said which."""

    def __init__(self, source_datapipe: Iterable[Any], sharding_group_filter: object = None) -> None:
        del sharding_group_filter
        super().__init__(source_datapipe)
        self.num_of_instances, self.instance_id = 1, 0

    def is_shardable(self) -> bool:
        """True."""
        return True

    def apply_sharding(self, num_of_instances: int, instance_id: int, sharding_group: object = None) -> None:
        """Give the samples whose number is `instance_id` modulo `num_of_instances`."""
        del sharding_group
        if not 0 <= instance_id < num_of_instances:
            raise ValueRangeError(
                f"instance_id({instance_id}) should be smaller than num_of_instances({num_of_instances})"
            )
        self.num_of_instances, self.instance_id = num_of_instances, instance_id

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.datapipe), self.instance_id, None, self.num_of_instances)

    def __len__(self) -> int:
        return len(range(self.instance_id, super().__len__(), self.num_of_instances))


@functional_datapipe("concat")
class ConcaterIterDataPipe(IterDataPipe[Any]):
    """The samples of several pipes, one pipe after another."""

    def __init__(self, *datapipes: Iterable[Any]) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self.datapipes)

    def __len__(self) -> int:
        return sum(map(_length, self.datapipes))


@functional_datapipe("zip")
class ZipperIterDataPipe(IterDataPipe[Any]):
    """Tuples with a sample of each of several pipes, until the first of them ends."""

    def __init__(self, *datapipes: Iterable[Any]) -> None:
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        return zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(map(_length, self.datapipes))


def get_all_graph_pipes(datapipe: Any) -> list[Any]:
    """A pipe and all that it is made of."""
    found: dict[int, Any] = {}

    def visit(value: Any) -> None:
        if isinstance(value, (list, tuple)):
            for part in value:
                visit(part)
        elif isinstance(value, (IterDataPipe, MapDataPipe)) and id(value) not in found:
            found[id(value)] = value
            for part in vars(value).values():
                visit(part)

    visit(datapipe)
    return list(found.values())


def apply_shuffle_settings(datapipe: Any, shuffle: bool | None = None) -> Any:
    """Switch the shuffling on or off of all pipes of which this one is made; None leaves it."""
    if shuffle is not None:
        for pipe in get_all_graph_pipes(datapipe):
            if hasattr(type(pipe), "set_shuffle"):
                pipe.set_shuffle(shuffle)
    return datapipe


def apply_sharding(datapipe: Any, num_of_instances: int, instance_id: int, sharding_group: object = None) -> Any:
    """Tell all pipes of which this one is made, and that can be divided, which part to give."""
    del sharding_group
    for pipe in get_all_graph_pipes(datapipe):
        if hasattr(type(pipe), "apply_sharding"):
            pipe.apply_sharding(num_of_instances, instance_id)
    return datapipe


def share(datapipe: Any, seed: int, workers: int, worker: int) -> None:
    """Let a worker of a loader have its part: of one order for all of them, where samples are shuffled first."""
    for pipe in get_all_graph_pipes(datapipe):
        if hasattr(type(pipe), "set_seed"):
            pipe.set_seed(seed)
    apply_sharding(datapipe, workers, worker)
