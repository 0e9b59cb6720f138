"""The modules that programs for the XLA device import besides `xla_model`."""

from __future__ import annotations

import re

import pytest

import weft as torch
import weft.xla as torch_xla
import weft.xla.test.test_utils as xtu
import weft.xla.utils.serialization as xser
import weft.xla.utils.utils as xu
import weft_xla
from weft import nn
from weft.export import export
from weft.xla import amp, stablehlo
from weft.xla.core import xla_model as xm
from weft.xla.debug import metrics as met
from weft.xla.debug import profiler as xp
from weft.xla.utils.checkpoint import checkpoint


def test_the_package():
    assert torch_xla.__version__ == weft_xla.__version__ == torch.__version__
    assert weft_xla.save_as_stablehlo is stablehlo.save_as_stablehlo
    for name in ("device", "devices", "device_count", "sync", "step", "compile", "launch", "manual_seed"):
        assert getattr(weft_xla, name) is getattr(torch_xla, name)


def test_a_step_as_a_decorator():
    kept = []

    @torch_xla.step()
    def step():
        kept.append(torch.ones(2, device="xla") + 1)
        assert kept[-1]._read().is_pending

    for _ in range(2):
        step()
    assert not any(x._read().is_pending for x in kept)
    assert met.counter_value("MarkStep") == 4


@pytest.mark.compiled
def test_a_step_is_told_by_the_line_of_its_block():
    with torch_xla.step():
        kept = torch.ones(5, device="xla").sin().cos()
    assert not kept._read().is_pending
    assert torch.explain()[-1].site.startswith(f"{__file__}:")


# --- utils.utils ---


def test_samples():
    loader = xu.SampleGenerator(data=(torch.zeros(2), 7), sample_count=3)
    assert len(loader) == 3
    for _ in range(2):
        assert [label for _, label in loader] == [7, 7, 7]
    made = xu.FnDataGenerator(lambda x: x.sum(), 4, torch.ones, dims=[2], count=2)
    assert len(made) == 2
    assert [(x.shape, y.item()) for x, y in made] == [((4, 2), 8), ((4, 2), 8)]
    assert [next(made)[1].item(), made.next()[1].item()] == [8, 8]
    with pytest.raises(StopIteration):
        next(made)


def test_structures():
    structure = {"a": [1, (2, "b")], "c": {3}}
    seen = []
    xu.for_each_instance(structure, lambda x: isinstance(x, int), seen.append)
    assert seen == [1, 2, 3]
    doubled = xu.for_each_instance_rewrite(structure, lambda x: isinstance(x, int), lambda x: 2 * x)
    assert doubled == {"a": [2, (4, "b")], "c": {6}}
    assert [xu.as_list(3), xu.as_list((3,))] == [[3], (3,)]
    assert (xu.shape([[1, 2, 3], [4, 5, 6]]), xu.shape(7), xu.shape([])) == ([2, 3], [], [0])
    with pytest.raises(
        RuntimeError, match=r"^shape: the parts of a nested list must have equal sizes, got \[\[1\], \[2\]\]$"
    ):
        xu.shape([[1], [1, 2]])
    assert xu.flatten_nested_tuple((1, [2, (3,)])) == (1, 2, 3)
    assert xu.list_copy_append([1], 2) == [1, 2]
    assert xu.parallel_work(2, pow, [2, 3], [3, 2]) == [8, 9]
    made = []
    lazy = xu.LazyProperty(lambda: made.append(1) or 5)
    assert (lazy.value, lazy.value, made) == (5, 5, [1])


class Pair(xu.DataWrapper):
    def __init__(self, first, second):
        self.first, self.second = first, second

    def get_tensors(self):
        return [self.first, self.second]

    def from_tensors(self, tensors):
        return tuple(tensors)


def test_objects_that_say_what_they_hold():
    batch = {"pair": Pair(torch.zeros(2), torch.ones(3)), "other": 4}
    moved = xm.send_cpu_data_to_device(batch, "xla:0")
    first, second = moved["pair"]
    assert xm.is_xla_tensor(first)
    assert second.tolist() == [1, 1, 1]
    with pytest.raises(NotImplementedError, match=r"^DataWrapper is a DataWrapper and must define get_tensors\(\)$"):
        xm.send_cpu_data_to_device([xu.DataWrapper()], "xla:0")


def test_the_environment(monkeypatch):
    monkeypatch.setenv("NUMBER", "3")
    monkeypatch.setenv("FLAG", "0")
    assert (xu.getenv_as("NUMBER", int), xu.getenv_as("FLAG", bool, True), xu.getenv_as("MISSING", int, 4)) == (
        3,
        False,
        4,
    )
    assert [xu.check_env_flag(name) for name in ("NUMBER", "FLAG", "MISSING")] == [True, False, False]
    monkeypatch.setenv("NUMBER", "many")
    with pytest.raises(RuntimeError, match=r"^NUMBER=many: expected int$"):
        xu.getenv_as("NUMBER", int)
    monkeypatch.setenv("DEBUG", "1")
    assert xu.get_print_fn() is xu.eprint
    assert xu.get_print_fn(debug=False) is xu.null_print


def test_times(capsys):
    assert xu.timed(lambda: 5, msg="work: ") == 5
    lines = []
    with xu.TimedScope("block ", lines.append):
        pass
    with xu.TimedScope("failed ", lines.append) as scope:
        scope.set_error("why")
    assert re.fullmatch(r"work: \d+\.\d{3}ms\n", capsys.readouterr().err)
    assert re.fullmatch(r"block \d+\.\d{3}ms", *lines)


def test_parts_that_are_computed_again():
    x = torch.ones(2, device="xla", requires_grad=True)
    checkpoint(lambda x, scale: scale * x.sin(), x, scale=2.0).sum().backward()  # without a warning
    assert x.grad is not None
    assert torch.allclose(x.grad, 2 * x.cos())


def test_files_of_large_models(tmp_path):
    xser.save({"w": torch.ones(2, device="xla")}, tmp_path / "x", master_only=False)
    assert xser.load(tmp_path / "x")["w"].tolist() == [1, 1]


# --- amp ---


def test_mixed_precision_on_the_device():
    model = nn.Linear(4, 2).to("xla")
    optimizer = amp.syncfree.SGD(model.parameters(), lr=0.1)
    scaler = amp.GradScaler(use_zero_grad=True, init_scale=8.0)
    with amp.autocast(xm.xla_device()):
        y = model(torch.ones(3, 4, device="xla"))
    assert y.dtype is torch.bfloat16
    before = model.bias.tolist()
    scaler.scale(y.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert model.bias.tolist() == pytest.approx([b - 0.3 for b in before], rel=1e-2)
    with amp.autocast(xm.xla_device(), dtype=torch.float16, enabled=False):
        assert model(torch.ones(3, 4, device="xla")).dtype is torch.float32
    with pytest.raises(
        RuntimeError, match=r"^autocast: an XLA device is needed, got cpu; for others there is weft\.amp"
    ):
        amp.autocast("cpu")


@pytest.mark.parametrize(
    ("kind", "plain", "options"),
    [
        (amp.syncfree.SGD, torch.optim.SGD, {"lr": 0.1, "momentum": 0.5, "dampening": 0.1}),
        (amp.syncfree.Adam, torch.optim.Adam, {"lr": 0.1, "amsgrad": True}),
        (amp.syncfree.AdamW, torch.optim.AdamW, {"lr": 0.1}),
    ],
)
def test_a_step_is_skipped_where_infinities_were_found(kind, plain, options):
    weight, expected = (nn.Parameter(torch.ones(2, device="xla")) for _ in range(2))
    optimizer, other = kind([weight], **options), plain([expected], **options)
    assert isinstance(optimizer, plain)
    for found in (1.0, 0.0, 1.0, 0.0):
        weight.grad, expected.grad = torch.full((2, 2), torch.nan if found else 0.5, device="xla")
        xm.optimizer_step(optimizer, optimizer_args={"found_inf": torch.tensor(found)})
        if not found:
            other.step()
    assert weight.tolist() == expected.tolist() != [1, 1]
    weight.grad = expected.grad = torch.ones(2, device="xla")
    assert optimizer.step(lambda: 7) == 7
    other.step()
    assert weight.tolist() == expected.tolist()
    with pytest.raises(ValueError, match=r"\.step: found_inf must be a tensor without dims, got one of size \[1\]$"):
        optimizer.step(found_inf=torch.zeros(1))


def test_steps_of_a_scaler_read_nothing():
    weight = nn.Parameter(torch.ones(2, device="xla"))
    optimizer, scaler = amp.syncfree.Adam([weight], lr=0.1), amp.GradScaler()
    scaler.scale((weight * torch.inf).sum()).backward()
    xm.mark_step()
    met.clear_all()
    scaler.step(optimizer)
    scaler.update()
    xm.mark_step()
    assert met.metric_data("TransferFromDeviceTime") is None
    assert weight.tolist() == [1, 1]


# --- debug.profiler ---


def test_traces(tmp_path):
    @xp.trace_me("doubled")
    def double(x):
        return x * 2

    xp.start_trace(str(tmp_path))
    with xp.StepTrace("train_step", step_num=1):
        with xp.Trace("forward", size=2):
            y = double(torch.ones(2, device="xla"))
        assert y._read().is_pending
    assert not y._read().is_pending  # the step has ended
    xp.stop_trace()
    (trace,) = tmp_path.rglob("*.xplane.pb")
    content = trace.read_bytes()
    for name in (b"train_step", b"forward", b"doubled"):
        assert name in content


def test_a_trace_for_some_time(tmp_path):
    xp.trace_detached("localhost:9012", str(tmp_path), duration_ms=1, timeout_s=3).join()
    assert [*tmp_path.rglob("*.xplane.pb")]
    with pytest.raises(
        RuntimeError, match=r"^trace: only this process can be traced, at an address such as localhost:"
    ):
        xp.trace("10.0.0.2:8466", str(tmp_path))


def test_the_server_runs_on_the_master_only(monkeypatch):
    started = []
    monkeypatch.setattr("jax.profiler.start_server", lambda port: started.append(port) or "server")
    assert xp.start_server(9012) == "server"
    monkeypatch.setattr(xp, "is_master_ordinal", lambda: False)
    assert xp.start_server(9013) is None
    assert xp.start_server(9014, only_on_master=False) == "server"
    assert started == [9012, 9014]


# --- test.test_utils ---


def test_lines_about_progress(capsys):
    xtu.print_training_update(xm.xla_device(), 10, torch.tensor(0.25), 3.0, 2.5, epoch=1)
    xtu.print_test_update("xla:0", 12.345, epoch=2)
    xtu.print_test_update("xla:0", None, step=3)
    first, second, third = capsys.readouterr().out.splitlines()
    time = r"Time=\d\d:\d\d:\d\d"
    assert re.fullmatch(
        rf"\| Training Device=xla:0/0 Epoch=1 Step=10 Loss=0.25000 Rate=3.00 GlobalRate=2.50 {time}", first
    )
    assert re.fullmatch(rf"\| Test Device=xla:0/0 Epoch=2 Accuracy=12.35 {time}", second)
    assert re.fullmatch(rf"\| Test Device=xla:0/0 Step=3 {time}", third)
    assert re.fullmatch(r"\d{4}", xtu.now("%Y"))


class Writer:
    def __init__(self):
        self.written, self.closed = {}, []

    def add_scalar(self, name, scalar, step):
        self.written[name] = (scalar, step)

    def flush(self):
        self.closed.append("flush")

    def close(self):
        self.closed.append("close")


def test_scalars_about_progress():
    writer = Writer()
    torch.ones(2).to("xla")
    xm.mark_step()
    xtu.write_to_summary(writer, 5, {"loss": 0.5}, write_xla_metrics=True)
    assert writer.written["loss"] == (0.5, 5)
    assert writer.written["MarkStep"] == (1, 5)
    assert writer.written["OutboundData/Accumulator"] == (8, 5)
    xtu.print_training_update("xla:0", 1, 0.0, 3.0, 2.0, summary_writer=writer)
    assert writer.written["examples/sec"] == (3.0, None)
    xtu.close_summary_writer(writer)
    assert writer.closed == ["flush", "close"]
    xtu.write_to_summary(None, 1, {"loss": 1})
    xtu.close_summary_writer(None)
    assert xtu.get_summary_writer(None) is None


def test_a_writer_of_event_files(tmp_path):
    writer = xtu.get_summary_writer(str(tmp_path))
    xtu.close_summary_writer(writer)
    assert [*tmp_path.glob("events.out.tfevents.*")]


# --- stablehlo ---


def test_models_as_stablehlo(tmp_path):
    model = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    stablehlo.save_torch_model_as_stablehlo(model, (x,), tmp_path / "model")
    loaded = stablehlo.StableHLOGraphModule.load(tmp_path / "model")
    assert torch.allclose(loaded(x), model(x))
    assert torch.allclose(loaded.evaluate("forward", (x,)), model(x))
    text = (tmp_path / "model" / "functions" / "forward.mlir").read_text()
    assert text == loaded.get_stablehlo_text("forward")
    assert "stablehlo.dot_general" in text
    assert (tmp_path / "model" / "functions" / "forward.bytecode").read_bytes() == loaded.get_stablehlo_bytecode()
    with pytest.raises(ValueError, match=r"^the only method of a program is 'forward', got 'train'$"):
        loaded.evaluate("train", (x,))


def test_programs_as_stablehlo(tmp_path):
    x = torch.randn(4, 3)
    program = export(nn.Linear(3, 2), (x,))
    module = stablehlo.exported_program_to_stablehlo(program, stablehlo.StableHLOExportOptions())
    assert module(x).tolist() == program(x).tolist()
    stablehlo.save_as_stablehlo(program, tmp_path, stablehlo.StableHLOExportOptions(include_human_readable_text=False))
    assert not [*tmp_path.rglob("*.mlir")]
