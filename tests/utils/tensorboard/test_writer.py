"""Files and numbers."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.util.tensor_util import make_ndarray

import weft
from tests.utils.tensorboard.reading import events, refused
from weft.errors import PreconditionError, UnsupportedDTypeError, ValueRangeError
from weft.utils.tensorboard import FileWriter, RecordWriter, SummaryWriter

# --- files ---


def test_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="_lr1", filename_suffix=".mine") as writer:
        writer.add_scalar("x", 1)
    host = re.escape(socket.gethostname())
    assert re.fullmatch(rf"runs/[A-Z][a-z]{{2}}\d\d_\d\d-\d\d-\d\d_{host}_lr1", writer.get_logdir())
    (name,) = os.listdir(writer.get_logdir())
    assert name.startswith("events.out.tfevents.")
    assert name.endswith(".mine")


def test_a_restart_purges_later_steps(tmp_path):
    with SummaryWriter(tmp_path / "a", purge_step=7) as writer:
        writer.add_scalar("x", 1.0, 7)
    _, version, start, scalar = events(tmp_path / "a")
    assert (version.step, version.file_version) == (7, "brain.Event:2")
    assert (start.step, start.session_log.status) == (7, SessionLog.START)
    assert scalar.summary.value[0].simple_value == 1.0


def test_a_closed_writer_starts_a_new_file(tmp_path):
    writer = SummaryWriter(tmp_path, filename_suffix=".1")
    writer.close()
    writer.close()
    writer.flush()
    assert (writer.file_writer, writer.all_writers) == (None, None)
    writer.filename_suffix = ".2"
    writer.add_scalar("x", 2.0)
    writer.flush()
    assert EventAccumulator(str(tmp_path)).Reload().Scalars("x")[0].value == 2.0
    writer.close()
    assert sorted(name[-2:] for name in os.listdir(tmp_path)) == [".1", ".2"]


def test_a_file_writer_alone(tmp_path):
    writer = FileWriter(tmp_path / "one")
    writer.add_event(Event(file_version="x"), step=np.int64(3), walltime=1.5)
    writer.flush()
    writer.reopen()  # is not closed
    writer.close()
    assert writer.get_logdir() == str(tmp_path / "one")
    last = events(tmp_path / "one")[-1]
    assert (last.step, last.wall_time) == (3, 1.5)
    for entry in (tmp_path / "one").iterdir():
        entry.unlink()
    writer.reopen()
    writer.close()
    assert len(events(tmp_path / "one")) == 1


def test_records_can_be_written(tmp_path):
    with open(tmp_path / "events.out.tfevents.1", "wb") as file:
        RecordWriter(file).write(Event(step=4).SerializeToString())
    assert [event.step for event in events(tmp_path)] == [4]


@pytest.mark.slow
def test_without_the_package_it_says_what_to_install():
    script = "import sys; sys.modules['tensorboard'] = None; import weft.utils.tensorboard"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith(
        "ModuleNotFoundError: weft.utils.tensorboard needs the package tensorboard; "
        "install it with: pip install weft[tensorboard]\n"
    )


# --- numbers ---


def test_scalars(written):
    def use(writer):
        for step, value in enumerate([1, 2.5, weft.tensor([3.5]), np.float64(4), weft.tensor(5.5).bfloat16()]):
            writer.add_scalar("loss", value, step, walltime=100.0 + step)
        writer.add_scalar("new", weft.tensor(0.1), weft.tensor(3), new_style=True)
        writer.add_scalar("double", 0.1, new_style=True, double_precision=True)

    read = written(use)
    assert [(e.step, e.wall_time, e.value) for e in read.Scalars("loss")] == [
        (0, 100.0, 1.0),
        (1, 101.0, 2.5),
        (2, 102.0, 3.5),
        (3, 103.0, 4.0),
        (4, 104.0, 5.5),
    ]
    (new,), (double,) = read.Tensors("new"), read.Tensors("double")
    assert new.step == 3
    assert make_ndarray(new.tensor_proto) == np.float32(0.1)
    assert make_ndarray(double.tensor_proto) == 0.1
    assert read.SummaryMetadata("new").plugin_data.plugin_name == "scalars"


def test_scalars_of_one_chart(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in range(2):
            writer.add_scalars("a/loss", {"train": step, "test": weft.tensor(step + 0.5)}, step)
        assert len(writer.all_writers) == 3
    for name, first in (("train", 0.0), ("test", 0.5)):
        read = EventAccumulator(str(tmp_path / f"a_loss_{name}")).Reload()
        assert [(e.step, e.value) for e in read.Scalars("a/loss")] == [(0, first), (1, first + 1)]


def test_what_is_no_scalar(tmp_path):
    text = r"^Tensor should contain one element \(0 dimensions\)\. Was given size: 2 and 1 dimensions\.$"
    refused(tmp_path, "add_scalar", "x", weft.ones(2), error=PreconditionError, match=text)
    refused(tmp_path, "add_scalars", "x", {"a": 1, "b": weft.ones(2)}, error=AssertionError, match=text)
    text = r"^Got <class 'list'>, but numpy array or torch tensor are expected\.$"
    refused(tmp_path, "add_scalar", "x", [1], error=NotImplementedError, match=text)
    assert issubclass(UnsupportedDTypeError, NotImplementedError)


@pytest.mark.filterwarnings("ignore:Setting the dtype on a NumPy array")  # what TensorBoard reads 16-bit floats by
@pytest.mark.parametrize("name", ["bool", "uint8", "int8", "int32", "int64", "float16", "float64", "complex64"])
def test_tensors(name, written):
    tensor = weft.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(weft, name))
    (found,) = written(lambda writer: writer.add_tensor("t", tensor, 3)).Tensors("t")
    array = make_ndarray(found.tensor_proto)
    assert (array.dtype, array.shape) == (np.dtype(name), (2, 3))
    assert array.tolist() == tensor.tolist()


def test_tensors_in_bfloat16(written):
    (found,) = written(lambda writer: writer.add_tensor("t", weft.tensor([1.5, -2]).bfloat16())).Tensors("t")
    assert list(found.tensor_proto.half_val) == [0x3FC0, 0xC000]


def test_tensors_of_other_types(tmp_path):
    text = r"^t has unsupported tensor dtype <U1$"
    refused(tmp_path, "add_tensor", "t", np.array(["a"]), error=ValueRangeError, match=text)


# --- histograms ---


def test_histograms(written):
    values = weft.tensor([[-1.0, 0.5], [0.5, 3.0]])

    def use(writer):
        writer.add_histogram("grown", values, 1)
        writer.add_histogram("four", values, 1, bins=4)
        writer.add_histogram("right", values, 1, bins=[0.0, 1.0, 2.0, 4.0, 8.0])
        writer.add_histogram("joined", np.arange(10), 1, bins=10, max_bins=4)
        writer.add_histogram_raw("raw", 0, 4, 3, 6.0, 14.0, [1.0, 4.0], weft.tensor([1, 2]).tolist(), 2)

    read = written(use)

    def found(tag):
        (event,) = read.Histograms(tag)
        return event.histogram_value

    grown = found("grown")
    assert (grown.min, grown.max, grown.num, grown.sum, grown.sum_squares) == (-1.0, 3.0, 4.0, 3.0, 10.5)
    assert [count for count in grown.bucket if count] == [1, 2, 1]
    assert (found("four").bucket_limit, found("four").bucket) == ([-1, 0, 1, 2, 3], [0, 1, 2, 0, 1])
    assert (found("right").bucket_limit, found("right").bucket) == ([0, 1, 2, 4], [0, 2, 0, 1])
    joined = found("joined")
    assert joined.bucket == [0, 2, 2, 2, 2, 2]
    assert joined.bucket_limit == pytest.approx([0, 1.8, 3.6, 5.4, 7.2, 9])
    raw = found("raw")
    assert (raw.min, raw.max, raw.num, raw.bucket_limit, raw.bucket) == (0, 4, 3, [1, 4], [1, 2])


def test_histograms_of_nothing(tmp_path):
    def fails(match, values, **options):
        refused(tmp_path, "add_histogram", "h", values, error=ValueRangeError, match=match, **options)

    fails(r"^The input has no element\.$", weft.zeros(0))
    fails(r"^The histogram is empty: no element lies in a bin\.$", weft.zeros(3), bins=[1.0, 2.0])
    text = r"^len\(bucket_limits\) != len\(bucket_counts\), see the document\.$"
    raw = ("h", 0, 1, 1, 1, 1, [1.0], [1, 2])
    refused(tmp_path, "add_histogram_raw", *raw, error=ValueRangeError, match=text)


def test_precision_and_recall(written):
    labels, predictions = weft.tensor([0, 1, 1, 0]), weft.tensor([0.1, 0.9, 0.4, 0.6])

    def use(writer):
        writer.add_pr_curve("p", labels, predictions, 1, num_thresholds=3)
        writer.add_pr_curve("w", labels, predictions, 1, num_thresholds=3, weights=weft.tensor([1.0, 2.0, 1.0, 1.0]))
        writer.add_pr_curve("many", labels, predictions, num_thresholds=500)
        writer.add_pr_curve_raw("raw", *weft.ones(6, 2), num_thresholds=2)

    read = written(use)
    rows = make_ndarray(read.Tensors("p")[0].tensor_proto)
    tp, fp, tn, fn, precision, recall = rows
    assert (tp.tolist(), fp.tolist(), tn.tolist(), fn.tolist()) == ([2, 1, 0], [2, 1, 0], [0, 1, 2], [0, 1, 2])
    assert (precision.tolist(), recall.tolist()) == ([0.5, 0.5, 0], [1, 0.5, 0])
    assert make_ndarray(read.Tensors("w")[0].tensor_proto)[0].tolist() == [3, 2, 0]
    assert make_ndarray(read.Tensors("many")[0].tensor_proto).shape == (6, 127)
    assert make_ndarray(read.Tensors("raw")[0].tensor_proto).tolist() == [[1, 1]] * 6
    assert read.SummaryMetadata("p").plugin_data.plugin_name == "pr_curves"
