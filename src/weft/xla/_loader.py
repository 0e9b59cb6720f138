"""Loaders that move batches to the device in advance.

One thread takes batches from the loader, and another one for each device moves them there. The threads refer to
the channels only, so that they end when the loop that reads the batches is gone.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from weft._base.device import DeviceLike
from weft._base.device import device as device_class
from weft._base.types import Arg
from weft._tensor.convert import existing
from weft.errors import DeviceError, ValueRangeError
from weft.xla._channel import Channel
from weft.xla._saving import InputSharding, sent
from weft.xla._steps import mark_step

if TYPE_CHECKING:
    from weft.utils.data._utils.samples import Batch


class _Pipeline:
    """The batches for one device.

    loaded   batches from the loader, on the host
    ready    batches on the device
    """

    def __init__(self, loaded: int, ready: int) -> None:
        self.loaded: Channel[Batch] = Channel(loaded)
        self.ready: Channel[Batch] = Channel(ready)


class ParallelLoader:
    """Gives the batches of a loader to devices in turns, moved there in advance; `per_device_loader` reads them.

    cpu_loader             any iterable of batches; at the end, batches that are too few for all devices are dropped
    devices                XLA devices, or a single one
    batches_per_execution  after how many batches a step ends
    loader_prefetch_size, device_prefetch_size   how many batches for a device wait on the host, and on the device

    input_sharding         how batches are split over a mesh, as in `send_cpu_data_to_device`

    `batchdim` and `host_to_device_transfer_threads` are accepted: batches keep their order, so each device has one
    thread. Errors of the loader are raised where its batches are read. Its threads end with the last batch, at `close`,
    or when nothing refers to it.
    """

    def __init__(
        self,
        cpu_loader: Iterable[object],
        devices: Sequence[DeviceLike] | DeviceLike,
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: InputSharding = None,
    ) -> None:
        del batchdim, host_to_device_transfer_threads
        for name, size in (
            ("batches_per_execution", batches_per_execution),
            ("loader_prefetch_size", loader_prefetch_size),
            ("device_prefetch_size", device_prefetch_size),
        ):
            if size < 1:
                raise ValueRangeError(f"ParallelLoader: {name} should be a positive integer, but got {name}={size}")
        targets = [devices] if isinstance(devices, (str, device_class, int)) else devices
        self._cpu_loader: Any = cpu_loader
        self._batches_per_execution = batches_per_execution
        self._pipelines = {existing(one): _Pipeline(loader_prefetch_size, device_prefetch_size) for one in targets}
        # The threads refer to the pipelines only, and not to this loader, so one that is dropped in the middle of a
        # pass stops them.
        self._stop = weakref.finalize(self, _close, list(self._pipelines.values()))
        _start("load batches", _load, cpu_loader, list(self._pipelines.values()))
        for target, pipeline in self._pipelines.items():
            _start(f"move batches to {target}", _move, pipeline, target, input_sharding)

    @property
    def batches_per_execution(self) -> int:
        """After how many batches a step ends."""
        return self._batches_per_execution

    def per_device_loader(self, device: DeviceLike) -> PerDeviceLoader:
        """The batches for one of the devices."""
        return PerDeviceLoader(self, device)

    def per_device_samples(self) -> int:
        """The number of batches for each device."""
        return len(self._cpu_loader) // len(self._pipelines)

    def next_item(self, device: DeviceLike) -> Batch:
        """The next batch for a device; None after the last one."""
        return next(self.ready(device), None)

    def ready(self, device: DeviceLike) -> Channel[Batch]:
        """The batches that are on a device."""
        pipeline = self._pipelines.get(existing(device))
        if pipeline is None:
            raise DeviceError(
                f"ParallelLoader: {device} is none of its devices, {', '.join(map(str, self._pipelines))}; give it to "
                "ParallelLoader, too"
            )
        return pipeline.ready

    def close(self) -> None:
        """Drop the batches that were not read, and end the threads as soon as the loader has made its current batch."""
        self._stop()


class PerDeviceLoader:
    """The batches of a `ParallelLoader` for one device, once. A step ends before every batch that begins one."""

    def __init__(self, loader: ParallelLoader, device: DeviceLike) -> None:
        self._loader = loader
        self._batches = loader.ready(device)
        self._yielded = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return self.next()

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    def next(self) -> Batch:
        """The next batch; `StopIteration` after the last one, whose step is ended."""
        if self._yielded % self._loader.batches_per_execution == 0:
            mark_step()
            self._yielded = 0
        self._yielded += 1
        try:
            return next(self._batches)
        except StopIteration:
            mark_step()
            raise


class MpDeviceLoader:
    """A loader with its batches on a device. A loop over it starts from the beginning; it can be left at any time.

    `kwargs` are those of `ParallelLoader`.
    """

    def __init__(self, loader: Iterable[object], device: DeviceLike, **kwargs: Arg) -> None:
        self._loader: Any = loader
        self._device = device
        self._options = kwargs
        self._parallel: weakref.ref[ParallelLoader] | None = None  # of the last loop

    def __iter__(self) -> PerDeviceLoader:
        if self._parallel is not None and (last := self._parallel()) is not None:
            last.close()
        parallel = ParallelLoader(self._loader, [self._device], **self._options)
        self._parallel = weakref.ref(parallel)
        return parallel.per_device_loader(self._device)

    def __len__(self) -> int:
        return len(self._loader)


def _start(name: str, target: Callable[..., None], *args: Arg) -> None:
    threading.Thread(target=target, args=args, name=name, daemon=True).start()


def _close(pipelines: Sequence[_Pipeline]) -> None:
    for pipeline in pipelines:
        pipeline.loaded.close()
        pipeline.ready.close()


def _load(loader: Iterable[object], pipelines: Sequence[_Pipeline]) -> None:
    """Give the loader's batches to the pipelines in turns."""
    failure: BaseException | None = None
    try:
        batches = map(next, repeat(iter(loader)))  # `iter` of an iterator may begin anew
        while len(group := list(islice(batches, len(pipelines)))) == len(pipelines):
            if not all(pipeline.loaded.put(batch) for pipeline, batch in zip(pipelines, group, strict=True)):
                break
    except BaseException as error:
        failure = error
    for pipeline in pipelines:
        pipeline.loaded.finish(failure)


def _move(pipeline: _Pipeline, target: device_class, input_sharding: InputSharding) -> None:
    """Move a pipeline's batches to its device."""
    failure: BaseException | None = None
    try:
        for batch in pipeline.loaded:
            if not pipeline.ready.put(sent(batch, target, input_sharding)):
                break
    except BaseException as error:
        failure = error
    pipeline.ready.finish(failure)
