"""What is in memory: which line made it, and what keeps it."""

import gc
import pickle
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import weft as torch
from weft import nn
from weft.utils import memory

HERE = Path(__file__)


@pytest.fixture
def recording():
    gc.collect()
    memory.record_history(device="cpu")
    yield
    memory.record_history(enabled=False, device="cpu")


def line_of(text):
    """`file:line` of the one line here that contains a text."""
    (number,) = [n for n, line in enumerate(HERE.read_text().splitlines(), 1) if text in line and "line_of" not in line]
    return f"{HERE}:{number}"


def of_size(nbytes):
    return [one for one in memory.allocations("cpu") if one.nbytes == nbytes]


def test_lines_of_what_is_recorded_given_and_loaded(recording, tmp_path):
    made = torch.zeros(1111) + 1  # recorded
    given = torch.tensor([1.0] * 1112)  # given
    torch.save(torch.ones(1113), tmp_path / "x.weft")
    loaded = torch.load(tmp_path / "x.weft")  # loaded
    made[0].item()
    assert [(one.site, one.operator) for one in of_size(4444)] == [(line_of("# recorded"), "add")]
    assert [(one.site, one.operator, one.type) for one in of_size(4448)] == [
        (line_of("# given"), "", "float32[1112]"),
    ]
    assert [one.site for one in of_size(4452 + 64)] == [line_of("# loaded")]  # in aligned memory
    assert {given.shape, loaded.shape} == {(1112,), (1113,)}


def test_what_was_made_before_has_no_line():
    x = torch.zeros(1117) + 1
    x[0].item()
    assert [(one.site, one.kind) for one in of_size(4468)] == [("", "tensor")]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(701, 3, bias=False)
        self.register_buffer("scale", torch.ones(1, 709))

    def forward(self, x):
        return torch.sigmoid(self.fc(x)).exp()


def test_what_keeps_it(recording):
    net, x = Net(), torch.ones(4801, 701)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(x).sum().backward()
    optimizer.step()
    y = net(x)  # the second pass
    y.sum().item()
    by_name = {(one.kind, one.name): one for one in memory.allocations("cpu")}
    for kind, name in [
        ("parameter", "Net.fc.weight"),
        ("gradient", "grad of Net.fc.weight"),
        ("optimizer state", "momentum_buffer of Net.fc.weight"),
    ]:
        assert by_name[kind, name].nbytes == 701 * 3 * 4
    assert by_name["buffer", "Net.scale"].nbytes == 709 * 4
    # `exp` reads its result, which is the program's own `y`, and `sigmoid` its own
    assert {(one.kind, one.operator) for one in of_size(4801 * 3 * 4)} == {
        ("tensor", "exp"),
        ("saved for backward", "sigmoid"),
    }
    saved = by_name["saved for backward", "exp"]
    assert saved.site == line_of("torch.sigmoid(self.fc(x)).exp()")


def test_overriding_classes_are_looked_at_without_asking_them():
    class Asked(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args, **kwargs):
            raise AssertionError("asked")

    x = (torch.zeros(1301) + 1).as_subclass(Asked)
    torch.Tensor._read(x)
    memory.allocations("cpu")


def test_pytorchs_names(recording, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = torch.zeros(1409) + 1  # of the snapshot
    x[0].item()
    segments = torch.cuda.memory.memory_snapshot(device="cpu")
    (block,) = [s["blocks"][0] for s in segments if s["total_size"] == 1409 * 4]
    assert block["state"] == "active_allocated"
    assert [f"{frame['filename']}:{frame['line']}" for frame in block["frames"]] == [line_of("# of the snapshot")]
    addresses = [(s["address"], s["total_size"]) for s in segments]
    assert all(a + size <= b for (a, size), (b, _) in pairwise(addresses))

    torch.cuda.memory._dump_snapshot("snapshot.pickle")
    with open("snapshot.pickle", "rb") as file:
        assert pickle.load(file).keys() >= {"segments", "device_traces"}
    torch.cuda.memory._record_memory_history(enabled=None, device="cpu")
    y = torch.zeros(1423) + 1
    y[0].item()
    assert [one.site for one in of_size(1423 * 4)] == [""]
    with pytest.raises(ValueError, match="expected enabled to be None, 'state' or 'all', but got 'some'"):
        torch.cuda.memory._record_memory_history("some")


@pytest.mark.oracle
def test_pytorchs_tools_read_the_file(tmp_path):
    viz = pytest.importorskip("torch.cuda._memory_viz")
    x = torch.zeros(1427) + 1
    x[0].item()
    snapshot = memory._snapshot("cpu")
    total = sum(one.nbytes for one in memory.allocations("cpu"))
    assert f"segments: {len(snapshot['segments'])}" in viz.segsum(snapshot)
    assert sum(s["total_size"] for s in snapshot["segments"]) == total
    assert "<html" in viz.segment_plot(snapshot) or "<!DOCTYPE" in viz.segment_plot(snapshot)


def test_the_page(recording, tmp_path):
    class Odd(nn.Module):
        pass

    odd = Odd()
    odd.register_parameter("<script>alert(1)</script>", nn.Parameter(torch.ones(1429)))
    (torch.zeros(1429) + 1)[0].item()
    memory.write_memory_page(tmp_path / "page.html", "cpu")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "Odd.&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "://" not in text
    assert str(HERE) in text
    assert "float32[1429]" in text
    assert "After each program" in text
    assert text.startswith("<!doctype html>")


def test_a_page_of_nothing(tmp_path):
    program = f"""
import weft
from weft.utils import memory
memory.write_memory_page({str(tmp_path / "page.html")!r}, "cpu")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert "0 B in use" in (tmp_path / "page.html").read_text()


def test_recording_lines_leaves_results_and_backward_passes_as_they_are(recording):
    x = torch.ones(3, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda x: (x * 3).sin().sum(), x, use_reentrant=False)
    y.backward()
    assert torch.allclose(x.grad, 3 * torch.cos(torch.tensor(3.0)))
