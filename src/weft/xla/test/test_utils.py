"""`torch_xla.test.test_utils`: lines and TensorBoard scalars about training and testing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING

from weft._base.device import DeviceLike
from weft._base.types import Arg
from weft.xla import _metrics
from weft.xla._replicas import replicas

if TYPE_CHECKING:
    from weft.utils.tensorboard import SummaryWriter


def now(format: str = "%H:%M:%S") -> str:
    """The present time of day."""
    return datetime.now().strftime(format)


def print_training_update(
    device: DeviceLike | None,
    step: int,
    loss: Arg,
    rate: float,
    global_rate: float,
    epoch: int | None = None,
    summary_writer: object = None,
) -> None:
    """Print a line about a step of training, and write the rates, in examples per second, to the writer if any."""
    _print(
        "Training",
        device,
        Epoch=epoch,
        Step=step,
        Loss=f"{float(loss):.5f}",
        Rate=f"{rate:.2f}",
        GlobalRate=f"{global_rate:.2f}",
    )
    write_to_summary(summary_writer, None, {"examples/sec": rate, "average_examples/sec": global_rate})


def print_test_update(
    device: DeviceLike | None, accuracy: float | None, epoch: int | None = None, step: int | None = None
) -> None:
    """Print a line about a test."""
    _print("Test", device, Step=step, Epoch=epoch, Accuracy=None if accuracy is None else f"{accuracy:.2f}")


def _print(kind: str, device: DeviceLike | None, **parts: object) -> None:
    """Print what is not None, with the device and this replica's ordinal, and the time."""
    fields = {"Device": f"{device}/{replicas().ordinal}", **parts, "Time": now()}
    print("|", kind, *[f"{name}={part}" for name, part in fields.items() if part is not None], flush=True)


def get_summary_writer(logdir: str | None) -> SummaryWriter | None:
    """A TensorBoard writer for this folder; None without one. It needs the package: `pip install weft[tensorboard]`."""
    if not logdir:
        return None
    writer: SummaryWriter = import_module("weft.utils.tensorboard").SummaryWriter(log_dir=logdir)
    write_to_summary(writer, 0, {"TensorboardStartTimestamp": time.time()})
    return writer


def write_to_summary(
    summary_writer: Arg,
    global_step: int | None = None,
    dict_to_write: Mapping[str, object] | None = None,
    write_xla_metrics: bool = False,
) -> None:
    """Write scalars by name, and with `write_xla_metrics` counters and sums of metrics; without a writer nothing."""
    if summary_writer is None:
        return
    scalars = dict(dict_to_write or {})
    if write_xla_metrics:
        scalars |= {name: _metrics.counter_value(name) for name in _metrics.counter_names()}
        for name in _metrics.metric_names():
            count, total, _ = _metrics.metric_data(name) or (0, 0.0, [])
            scalars |= {f"{name}/TotalSamples": count, f"{name}/Accumulator": total}
    for name, scalar in scalars.items():
        summary_writer.add_scalar(name, scalar, global_step)


def close_summary_writer(summary_writer: Arg) -> None:
    """Write everything and close a writer, if there is one."""
    if summary_writer is not None:
        summary_writer.flush()
        summary_writer.close()
