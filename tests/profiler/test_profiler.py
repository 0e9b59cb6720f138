"""Traces: which steps they cover, what is in them, and how they are written."""

from __future__ import annotations

import gzip
import json
import pickle
import re
import time
from pathlib import Path

import pytest

import weft
from weft._base.state import ambient
from weft._base.timeline import Listeners
from weft.autograd.profiler import EventList, emit_itt, emit_nvtx, record_function
from weft.autograd.profiler import profile as old_profile
from weft.profiler import (
    ProfilerAction,
    ProfilerActivity,
    _KinetoProfile,
    profile,
    schedule,
    tensorboard_trace_handler,
)


def test_schedules_are_cycles():
    action = schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2)
    names = [
        action(step).name[0] + ("S" if action(step) is ProfilerAction.RECORD_AND_SAVE else "") for step in range(11)
    ]
    assert names == ["N", "N", "W", "R", "RS", "N", "W", "R", "RS", "N", "N"]
    assert schedule(wait=1, warmup=0, active=1, skip_first_wait=1)(0) is ProfilerAction.RECORD_AND_SAVE
    with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
        schedule(wait=1, warmup=0, active=0)


def test_a_trace_has_the_blocks_of_its_steps(tmp_path):
    traces = []

    def ready(trace):
        traces.append([event.name for event in trace.events() if event.name.startswith(("ProfilerStep", "block"))])
        trace.export_chrome_trace(tmp_path / f"{len(traces)}.json.gz")

    with profile(
        activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=0, active=1), on_trace_ready=ready
    ) as trace:
        trace.add_metadata("by", "test")
        for step in range(4):
            with record_function(f"block {step}"):
                (weft.ones(8) @ weft.ones(8)).item()
            trace.step()
    assert traces == [["ProfilerStep#1", "block 1"], ["ProfilerStep#3", "block 3"]]
    written = json.loads(gzip.decompress((tmp_path / "2.json.gz").read_bytes()))
    assert written["by"] == "test"
    assert "block 3" in {event.get("name") for event in written["traceEvents"]}


def test_sums_by_name_do_not_count_time_twice():
    with profile() as trace:
        for _ in range(2):
            with record_function("outer"), record_function("inner"):
                weft.ones(3).sum().item()
    sums = {event.key: event for event in trace.key_averages()}
    assert (sums["outer"].count, sums["inner"].count) == (2, 2)
    assert sums["outer"].cpu_time_total >= sums["inner"].cpu_time_total > 0
    assert sums["outer"].self_cpu_time_total <= sums["outer"].cpu_time_total - sums["inner"].cpu_time_total + 1
    assert isinstance(trace.events(), EventList)
    lines = trace.key_averages().table(sort_by="cpu_time_total", row_limit=3).splitlines()
    assert lines[1].split("  ")[0] == "Name"
    assert [line.startswith("--") for line in lines[:7]] == [True, False, True, False, False, False, True]
    with pytest.raises(KeyError, match="sort_by must be one of count, cpu_time"):
        trace.key_averages().table(sort_by="gpu_time")


def test_tensorboard_finds_its_files(tmp_path):
    both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=both, on_trace_ready=tensorboard_trace_handler(str(tmp_path), "worker")):
        weft.ones(3).sum().item()
    names = {path.name for path in tmp_path.glob("plugins/profile/*/*")}
    assert {"worker.xplane.pb", "worker.trace.json.gz"} <= names


def network():
    layers = weft.nn.Sequential(weft.nn.Linear(8, 16), weft.nn.ReLU(), weft.nn.Linear(16, 1))
    optimizer = weft.optim.Adam(layers.parameters())
    x = weft.randn(4, 8)

    def step():
        optimizer.zero_grad()
        loss = layers(x).pow(2).mean()  # the line of the forward pass
        loss.backward()
        optimizer.step()
        return loss

    return step


def test_a_profile_within_another_one_is_no_part_of_the_program():
    with light() as outer, old_profile() as inner:
        weft.ones(2).sum().item()
    assert {e.key: e.count for e in outer.key_averages() if e.is_operator} == {"aten::ones": 1, "aten::sum": 1}
    assert len([e for e in inner.function_events if e.is_operator]) == 2


def test_steps_have_one_line_and_their_numbers():
    numbers = []
    with light(
        schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=lambda p: numbers.append(p.step_num)
    ) as trace:
        for _ in range(8):
            with record_function("outer"), record_function("inner"):
                weft.ones(3).sum().item()
            trace.step()
    assert numbers == [4, 8]
    sums = {event.key: event.count for event in trace.key_averages()}
    assert sums["ProfilerStep*"] == sums["outer"] == 2
    assert "outer" in trace.events().table(top_level_events_only=True)
    assert "inner" not in trace.events().table(top_level_events_only=True)
    assert all(event.time_range.elapsed_us() >= 0 for event in trace.events())


@pytest.mark.compiled
def test_the_time_of_programs_counts_once():
    x = weft.rand(600, 600)
    (x @ x).sum().item()
    with light() as trace:
        for _ in range(5):
            (x @ x).sum().item()
    phases, sums = trace.phases(), trace.key_averages()
    assert "waiting" in phases or "running" in phases
    assert not {"[waiting]", "[running]"} & {event.key for event in sums}
    computed = sum(event.computed_time_total for event in sums)
    # counted twice, it would be double; that a program is complete may be noticed when the next one has begun
    assert computed == pytest.approx(1e6 * phases.computing, rel=0.5)
    assert sums.self_cpu_time_total < 1e6 * (phases.wall + phases.computing)


def test_options_are_checked():
    with pytest.raises(TypeError, match="unexpected keyword argument 'record_shape'"):
        profile(record_shape=True)
    with pytest.raises(AssertionError, match=r"activities must be of ProfilerActivity, got \['cpu'\]"):
        profile(activities=["cpu"])


def light(**options):
    return profile(activities=[ProfilerActivity.CPU], **options)


def test_phases_add_up_to_the_time_of_the_block():
    step = network()
    with light() as trace:
        for _ in range(3):
            step().item()
    phases = trace.phases()
    assert sum(phases.values()) == pytest.approx(phases.wall, rel=1e-9)
    assert all(seconds >= 0 for seconds in phases.values())
    assert {"Python", "recording", "inference", "planning", "profiling"} <= set(phases)
    assert phases.operators > 30
    assert str(phases).startswith("Phase ")


@pytest.mark.compiled
def test_compilations_are_told_apart():
    x = weft.rand(17, 3)
    with light() as trace:
        ((x * 3).cos() @ x.T).sum().item()
    phases = trace.phases()
    assert min(phases[name] for name in ("tracing", "lowering", "compiling", "running")) > 0
    assert phases.computing > 0
    with light() as trace:
        ((x * 3).cos() @ x.T).sum().item()
    assert not {"inference", "tracing", "lowering", "compiling"} & set(trace.phases())


def test_no_share_is_more_than_the_whole_and_operators_are_top_level():
    step = network()
    with light(schedule=schedule(wait=0, warmup=0, active=2)) as trace:
        for _ in range(2):
            step().item()
            trace.step()
    with old_profile() as other:
        step().item()
        unread = weft.ones(3).exp()  # noqa: F841  nobody reads it
    for events in (trace.key_averages(), other.key_averages()):
        table = events.table(top_level_events_only=False)
        assert all(float(share) <= 100 for share in re.findall(r"([\d.]+)%", table))
    assert "ProfilerStep*" in trace.key_averages().table()
    top = other.key_averages().table(top_level_events_only=True)
    assert top.startswith("This report only display top-level ops statistics")
    assert "aten::linear" in top
    parents = {event.key: event.cpu_parent for event in other.events if event.is_operator}
    assert all(parent is None or not parent.key.startswith("[") for parent in parents.values())


def test_events_can_be_chosen_by_device_as_in_pytorch():
    with light() as trace:
        weft.ones(3).exp().sum().item()
    events = [event for event in trace.key_averages() if event.device_type == weft.autograd.DeviceType.CPU]
    assert {"aten::exp", "aten::sum"} <= {event.key for event in events}
    assert sum(event.self_device_time_total for event in events) == 0
    assert events[0].device_time_total_str == "0.000us"
    assert not [event for event in trace.events() if event.device_type == weft.profiler.DeviceType.CUDA]


def test_operators_have_their_lines_shapes_and_shares():
    step = network()
    step().item()
    with light(record_shapes=True, with_stack=True, profile_memory=True) as trace:
        step().item()
    events = [event for event in trace.events() if event.is_operator]
    forward = [event for event in events if "linear" in event.key and "grad" not in event.key]
    assert [event.input_shapes for event in forward] == [[[4, 8], [16, 8], [16]], [[4, 16], [1, 16], [1]]]
    assert all("test_profiler.py" in event.stack[0] and event.stack[0].endswith(": step") for event in forward)
    assert forward[0].cpu_memory_usage == 4 * 16 * 4
    assert any(event.key == "aten::grad of linear" for event in events)
    assert sum(event.computed_time_total for event in events) > 0
    text = trace.key_averages(group_by_stack_n=1).table(sort_by="self_cpu_time_total", max_src_column_width=200)
    assert "Source Location" in text
    assert "test_profiler.py(" in text
    assert "aten::adam_step" in text
    assert "by estimated costs" in text
    by_shape = trace.key_averages(group_by_input_shape=True)
    assert len([event for event in by_shape if event.key == "aten::linear"]) == 2


@pytest.mark.compiled
def test_a_captured_function_shows_its_operators_and_is_not_compiled_again(compilations):
    step = weft.compile(network())
    for _ in range(4):
        step()
    weft.cpu.synchronize()
    compilations()
    with light() as trace:
        for _ in range(3):
            step()
    assert not compilations()
    sums = {event.key: event for event in trace.key_averages()}
    whole = sums["aten::compiled step"]
    assert whole.count == 3
    assert sums["aten::linear"].count == 6
    parts = [event for event in sums.values() if event.is_operator and event is not whole]
    assert sum(event.computed_time_total for event in parts) == pytest.approx(
        whole.cpu_time_total - whole.self_cpu_time_total
    )


@pytest.mark.compiled
def test_captured_operators_have_the_lines_at_which_they_were_captured():
    @weft.compile
    def function(x):
        product = x @ x  # the line of the product
        return product.exp().sum()

    for _ in range(2):
        function(weft.ones(4, 4))
    with light(with_stack=True) as trace:
        function(weft.ones(4, 4))  # the line of the call
    stacks = {event.key: event.stack for event in trace.events() if event.is_operator}
    lines = Path(__file__).read_text().splitlines()

    def text_at(frame):
        return lines[int(re.search(r"test_profiler\.py\((\d+)\)", frame)[1]) - 1]

    assert text_at(stacks["aten::matmul"][0]).endswith("# the line of the product")
    assert text_at(stacks["aten::matmul"][1]).endswith("# the line of the call")
    assert text_at(stacks["aten::compiled function"][0]).endswith("# the line of the call")
    (by_line,) = [e for e in trace.key_averages(group_by_stack_n=1) if e.key == "aten::exp"]
    assert "return product.exp()" in text_at(by_line.stack[0])


@pytest.mark.compiled
def test_modules_are_noted_where_a_function_is_captured():
    step = weft.compile(network())
    with light(with_modules=True) as trace:
        for _ in range(3):
            step().item()
    sums = {event.key: event.count for event in trace.key_averages()}
    assert sums.get("nn.Module: Linear", 0) < 6
    assert sums["aten::compiled step"] > 0


def test_operations_are_counted():
    step = network()
    with light(with_flops=True) as trace:
        step().item()
    sums = {event.key: event.flops for event in trace.key_averages()}
    assert sums["aten::linear"] == 2 * 4 * (8 * 16 + 16)
    assert sums["aten::grad of linear"] == 2 * 4 * (8 * 16 + 2 * 16)  # the input needs no gradient
    assert "Total MFLOPs" in trace.key_averages().table()


def test_modules_and_stacks(tmp_path):
    step = network()
    with light(with_modules=True, with_stack=True) as trace:
        step().item()
    assert {"nn.Module: Sequential", "nn.Module: Linear"} <= {event.key for event in trace.events()}
    (first, _) = [event for event in trace.events() if event.key == "aten::linear"]
    assert first.modules == ("Sequential", "Linear")
    with old_profile(with_stack=True) as older:
        step().item()
    for notes in (trace, older):
        notes.export_stacks(tmp_path / "stacks")
        lines = (tmp_path / "stacks").read_text().splitlines()
        assert any(re.fullmatch(r"\S+;\S*test_profiler\.py\(\d+\):_step;aten::\S+ \d+", line) for line in lines)
    trace.export_chrome_trace(tmp_path / "trace.json")
    written = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    (stack, _) = [entry["args"]["Call stack"] for entry in written if entry["name"] == "aten::linear"]
    assert re.match(
        r"\S*test_profiler\.py\(\d+\): \w+;", stack
    )  # as TensorBoard's plugin takes it: the innermost first
    with pytest.raises(ValueError, match="metric should be one of"):
        trace.export_stacks(tmp_path / "stacks", "time")


def test_a_trace_is_what_perfetto_reads(tmp_path):
    step = network()
    with light(with_stack=True) as trace, record_function("block"):
        step().item()
    trace.export_chrome_trace(tmp_path / "trace.json")
    content = json.loads((tmp_path / "trace.json").read_text())
    assert content["schemaVersion"] == 1
    for entry in content["traceEvents"]:
        assert entry["ph"] in "XM"
        assert {"name", "pid", "tid"} <= set(entry)
        if entry["ph"] == "X":
            assert entry["ts"] >= -1e3
            assert entry["dur"] >= 0
    categories = {entry.get("cat") for entry in content["traceEvents"]}
    assert {"cpu_op", "weft", "user_annotation", "program"} <= categories


def test_waiting_for_data_is_a_phase_of_its_own():
    class Numbers(weft.utils.data.Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return weft.full((2,), float(index)).exp()

    with light() as trace:
        for batch in weft.utils.data.DataLoader(Numbers(), batch_size=3):
            batch.sum().item()
    phases = trace.phases()
    assert phases["data"] > 0
    names = [event.key for event in trace.events()]
    assert names.count("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__") == 3


def test_optimizers_have_a_line_for_each_method():
    class Own(weft.optim.SGD):
        pass

    model = weft.nn.Linear(2, 1)
    optimizer = Own(model.parameters(), lr=0.1)
    with light() as trace:
        model(weft.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    names = [event.key for event in trace.events() if event.key.startswith("Optimizer.")]
    assert names == ["Optimizer.step#Own.step", "Optimizer.zero_grad#Own.zero_grad"]


def test_the_older_profile_has_the_same_figures(tmp_path):
    step = network()
    with old_profile(record_shapes=True, with_stack=True) as trace:
        assert str(trace) == "<unfinished profile>"
        with record_function("outer"):
            step().item()
    assert isinstance(trace.function_events, EventList)
    assert "outer" in trace.table(sort_by="cpu_time_total")
    assert trace.total_average().count == sum(event.count for event in trace.key_averages())
    assert sum(trace.phases().values()) == pytest.approx(trace.phases().wall)
    trace.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    assert json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    off = old_profile(enabled=False)
    with off as entered:
        step().item()
    assert entered is None
    with pytest.raises(RuntimeError, match="there are no figures yet"):
        off.key_averages()
    with pytest.raises(RuntimeError, match="make another one"), trace:
        pass
    with emit_nvtx(), emit_itt():
        step().item()


@pytest.mark.parametrize("accumulates", [False, True])
def test_events_of_all_cycles_are_kept_if_asked_for(accumulates):
    x, counts = weft.ones(2), []
    rounds = schedule(wait=1, warmup=0, active=1, repeat=3)

    def note(trace):
        counts.append({event.key: event.count for event in trace.key_averages()}.get("aten::tanh"))

    with profile(
        activities=[ProfilerActivity.CPU], schedule=rounds, on_trace_ready=note, acc_events=accumulates
    ) as trace:
        for _ in range(7):
            weft.tanh(x).tolist()
            trace.step()
    assert counts == ([1, 2, 3] if accumulates else [1, 1, 1])
    events = trace.events()
    steps = [event.key for event in events if event.key.startswith("ProfilerStep#")]
    assert steps == (["ProfilerStep#1", "ProfilerStep#3", "ProfilerStep#5"] if accumulates else ["ProfilerStep#5"])
    assert [event.id for event in events] == list(range(len(events)))
    starts = [event.start for event in events]
    assert starts == sorted(starts)


def test_a_trace_says_what_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    ids = iter(["first", "second"])
    trace = _KinetoProfile(record_shapes=True, custom_trace_id_callback=lambda: next(ids))
    trace.preset_metadata_json("sizes", "[1, 2]")
    assert trace.get_trace_id() is None
    for name in ("first", "second"):
        before = time.time_ns()
        trace.start()
        trace.add_metadata("run", name)
        weft.ones(3).tolist()
        trace.stop()
        trace.export_chrome_trace(tmp_path / "trace.json")
        written = json.loads((tmp_path / "trace.json").read_text())
        assert (written["trace_id"], written["run"], written["sizes"]) == (name, name, [1, 2])
        assert written["record_shapes"] == 1
        assert written["distributedInfo"] == {"rank": 2, "world_size": 4}
        assert "with_stack" not in written
        assert before <= written["baseTimeNanoseconds"] <= time.time_ns()
    with profile() as own:
        pass
    assert re.fullmatch(r"[0-9A-F]{32}", own.get_trace_id() or "")
    with pytest.raises(AssertionError, match="must be started before it is stopped"):
        trace.stop_trace()
    with pytest.raises(NotImplementedError, match=r"weft\.utils\.memory\.write_memory_page"):
        trace.export_memory_timeline("timeline.json")


def test_noting_can_be_paused():
    cpu = [ProfilerActivity.CPU]
    with light() as trace:
        weft.ones(3).sin().tolist()
        trace.toggle_collection_dynamic(False, cpu)
        trace.toggle_collection_dynamic(True, [ProfilerActivity.CUDA])
        with record_function("unseen"):
            weft.ones(3).cos().tolist()
        trace.toggle_collection_dynamic(True, cpu)
        trace.toggle_collection_dynamic(True, cpu)
        with record_function("seen"):
            weft.ones(3).tan().tolist()
    names = [event.name for event in trace.events() if not event.name.startswith("[")]
    assert names == ["aten::ones", "aten::sin", "seen", "aten::ones", "aten::tan"]
    assert sum(trace.phases().values()) == pytest.approx(trace.phases().wall)
    with pytest.raises(AssertionError, match="between its start and its end"):
        trace.toggle_collection_dynamic(True, cpu)


def test_settings_of_pytorch_are_accepted():
    config = weft._C._profiler._ExperimentalConfig(verbose=True)
    assert pickle.loads(pickle.dumps(config)) == config
    with profile(activities=[{ProfilerActivity.CPU: ["CPU_OP"]}], experimental_config=config) as trace:
        assert weft.autograd.profiler._is_profiler_enabled
        assert weft.autograd._profiler_enabled()
        weft.ones(3).tolist()
    assert not weft.autograd.profiler._is_profiler_enabled
    assert not weft.autograd._profiler_enabled()
    assert "aten::ones" in [event.name for event in trace.events()]
    with pytest.raises(ValueError, match="each activity may be named once"):
        profile(activities=[ProfilerActivity.CPU, {ProfilerActivity.CPU: []}])


def test_nothing_is_noted_afterwards():
    step = network()
    with light() as trace:
        step().item()
    before = len(trace.notes.spans), len(trace.notes.operators), len(trace.events())
    step().item()
    assert (len(trace.notes.spans), len(trace.notes.operators), len(trace.events())) == before
    assert not Listeners.all
    assert not ambient().watchers.observers


def test_what_is_not_there_is_an_error():
    trace = profile()
    for call in (trace.events, trace.key_averages, lambda: trace.export_chrome_trace("x")):
        with pytest.raises(AssertionError, match="there is no complete trace yet"):
            call()
    with pytest.raises(AssertionError, match="must be started before it is stopped"):
        trace.stop()
    with pytest.raises(AssertionError, match=r"No valid profiler activities found.*got \[\]"):
        profile(activities=[])
    with pytest.raises(RuntimeError, match="Can't create directory: /proc/none"):
        tensorboard_trace_handler("/proc/none")(trace)
    with pytest.raises(ValueError, match=r"export_stacks\(\) requires with_stack=True"):
        trace.export_stacks("x")
    gpu = [ProfilerActivity.CUDA]
    with (
        profile(activities=gpu),
        pytest.raises(RuntimeError, match="a trace cannot be started"),
        profile(activities=gpu),
    ):
        pass


def test_shares_are_at_most_the_whole():
    def recurse(depth):
        with record_function("block"):
            if depth:
                recurse(depth - 1)
            (x @ x).sum().item()

    x = weft.rand(50, 50)
    with light(schedule=schedule(wait=0, warmup=0, active=2, repeat=1)) as trace:
        for _ in range(2):
            recurse(3)
            trace.step()
    sums = trace.key_averages()
    whole = sums.self_cpu_time_total
    named = {event.key: event for event in sums}
    assert named["block"].count == 8
    assert max(event.cpu_time_total for event in sums) <= whole * (1 + 1e-9)
    assert named["block"].cpu_time_total <= named["ProfilerStep*"].cpu_time_total


def test_what_came_before_the_profile_has_an_event():
    def work():
        (weft.ones(20, 20) @ x).sum().item()

    with light() as first:
        x = weft.rand(20, 20).exp()
        work()
    assert "[computing]" not in {event.key for event in first.events()}
    notes = first.notes
    del notes.operators[:]
    (rest,) = [event for event in first.key_averages() if event.key == "[computing]"]
    assert rest.cpu_time_total == pytest.approx(1e6 * first.phases().computing)


def test_operators_without_blocks_are_top_level():
    with light() as trace:
        weft.ones(3).exp().sum().item()
        with record_function("block"):
            weft.ones(3).cos().sum().item()
    text = trace.events().table(top_level_events_only=True)
    assert text.startswith("This report only display top-level ops statistics")
    assert "aten::exp" in text
    assert "aten::cos" not in text


def test_what_nobody_reads_is_said():
    with light() as trace:
        (weft.ones(3) * 2).exp()
        weft.ones(3).sum().item()
    assert "3 operators were not computed within the profile: nobody read" in trace.key_averages().table()
    with light() as trace:
        weft.ones(3).sum().item()
    assert "not computed" not in trace.key_averages().table()


def test_parents_are_blocks_and_passes():
    step = network()
    with light() as trace, record_function("block"):
        step().item()
    parents = {event.key: event.cpu_parent for event in trace.events() if event.is_operator}
    assert parents["aten::linear"].key == "block"
    assert parents["aten::grad of linear"].key == "backward"
    assert not [p.key for e in trace.events() if e.is_operator and (p := e.cpu_parent) and p.key.startswith("[")]


def test_blocks_have_the_bytes_of_what_is_within():
    square = weft.compile(lambda x: x * x + 1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace, record_function("outer"):
        for _ in range(2):
            with record_function("inner"), record_function("inner"):
                weft.ones(8)
        square(weft.ones(4)).tolist()
    sums = {event.key: event for event in trace.key_averages()}
    assert (sums["aten::ones"].cpu_memory_usage, sums["aten::ones"].self_cpu_memory_usage) == (80, 80)
    assert (sums["inner"].cpu_memory_usage, sums["inner"].self_cpu_memory_usage) == (64, 0)
    assert sums["outer"].cpu_memory_usage == trace.events().total_average().cpu_memory_usage == 80 + 16 + 16
    assert "Self CPU Mem" in trace.key_averages().table(sort_by="self_cpu_memory_usage")


def test_operators_of_users_have_their_own_namespaces(tmp_path):
    @weft.library.custom_op("tests_profiler::double", mutates_args=())
    def double(x: weft.Tensor) -> weft.Tensor:
        return x * 2

    with light() as trace:
        double(weft.ones(3)).tolist()
    trace.export_chrome_trace(tmp_path / "trace.json")
    written = {entry["name"] for entry in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]}
    for names in ({event.name for event in trace.events()}, written):
        assert {"tests_profiler::double", "aten::ones"} <= names


def test_sums_have_short_texts_and_tables_one_unit():
    with light() as trace:
        weft.ones(3).sum().item()
    assert repr(trace.events().total_average()).startswith("<FunctionEventAvg key=Total ")
    assert repr(trace.events()[0]).startswith("<FunctionEvent id=")
    assert trace.events()[0].kernels == []
    assert re.search(r"Self CPU time total: 0\.\d{3}s", trace.key_averages().table(time_unit="s"))
    with pytest.raises(AttributeError, match="sort_by must be one of"):
        trace.key_averages().table(sort_by="x")
