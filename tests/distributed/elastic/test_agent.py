"""One agent in this process: ranks, states, results, restarts, events, metrics, timers and the health check."""

import json
import logging
import os
import signal
import time
import urllib.request
from datetime import timedelta
from pathlib import Path

import pytest

from weft._comm.stores.store import HashStore
from weft.distributed.elastic import events, metrics
from weft.distributed.elastic.agent.server import (
    LocalElasticAgent,
    RunResult,
    SimpleElasticAgent,
    Worker,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from weft.distributed.elastic.agent.server._ranks import Ranks, RoleInfo, ranks
from weft.distributed.elastic.agent.server.health_check_server import create_healthcheck_server
from weft.distributed.elastic.multiprocessing import SignalException, start_processes
from weft.distributed.elastic.rendezvous import (
    DynamicRendezvousHandler,
    RendezvousGracefulExitError,
    RendezvousTimeout,
)
from weft.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.distributed.elastic.timer import FileTimerClient


@pytest.fixture
def handler():
    store = HashStore()
    timeout = RendezvousTimeout(join=timedelta(seconds=20))
    made = DynamicRendezvousHandler.from_backend(
        "job", store, C10dRendezvousBackend(store, "job"), 1, 1, "127.0.0.1", timeout
    )
    yield made
    made.shutdown()


@pytest.fixture
def spec(handler):
    def make(entrypoint, *args, local_world_size=1, max_restarts=0, **options):
        return WorkerSpec(
            "trainer", local_world_size, handler, None, entrypoint, args, max_restarts, monitor_interval=1.0, **options
        )

    return make


def double(rank):
    return 2 * int(os.environ["RANK"]) + rank


def fail(folder):
    Path(folder, os.environ["TORCHELASTIC_RESTART_COUNT"]).touch()
    if os.environ["RANK"] == "1":
        raise ValueError("boom")
    time.sleep(60)


def fail_once():
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    return os.environ["TORCHELASTIC_MAX_RESTARTS"]


def environment():
    return {name: os.environ.get(name) for name in ENVIRONMENT}


ENVIRONMENT = {
    "LOCAL_RANK": "0",
    "RANK": "0",
    "GROUP_RANK": "0",
    "ROLE_RANK": "0",
    "ROLE_NAME": "trainer",
    "LOCAL_WORLD_SIZE": "1",
    "WORLD_SIZE": "1",
    "GROUP_WORLD_SIZE": "1",
    "ROLE_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "TORCHELASTIC_RUN_ID": "job",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    "OMP_NUM_THREADS": "3",
    "WEFT_JOB_KEY": "a secret of the job",
    "WEFT_RENDEZVOUS_ROUND": "0",
}


def test_functions_return_values_by_global_rank(spec):
    result = LocalElasticAgent(spec(double, 5, local_world_size=2)).run()
    assert (result.state, result.return_values, result.is_failed()) == (WorkerState.SUCCEEDED, {0: 5, 1: 7}, False)


def test_workers_are_told_where_they_are(spec, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("WEFT_JOB_KEY", "a secret of the job")
    assert LocalElasticAgent(spec(environment)).run().return_values == {0: ENVIRONMENT}


def test_a_failure_ends_the_others_at_once_and_restarts_are_counted(spec, tmp_path):
    agent = LocalElasticAgent(spec(fail, str(tmp_path), local_world_size=2, max_restarts=1))
    result = agent.run()
    assert (result.state, list(result.failures)) == (WorkerState.FAILED, [1])
    assert result.failures[1].message["message"] == "ValueError: boom"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert agent.get_worker_group().state is WorkerState.FAILED


def test_a_killed_worker_is_started_again(spec):
    assert LocalElasticAgent(spec(fail_once, max_restarts=1)).run().return_values == {0: "1"}


def test_commands_get_their_local_rank_and_no_other_dollars(spec, tmp_path):
    command = 'echo "$1 $2" > "$0/$LOCAL_RANK"'
    result = LocalElasticAgent(
        spec("/bin/sh", "-c", command, str(tmp_path), "at ${local_rank}", "$$", local_world_size=2)
    ).run()
    assert result.return_values == {0: None, 1: None}
    assert [(tmp_path / name).read_text() for name in "01"] == ["at 0 $$\n", "at 1 $$\n"]


def test_processes_may_be_started_by_another_function(spec):
    names = []

    def starter(**options):
        names.append(options["name"])
        return start_processes(**options)

    assert LocalElasticAgent(spec("/bin/true"), starter=starter).run().state is WorkerState.SUCCEEDED
    assert names == ["trainer"]


def test_one_virtual_device_for_each_worker(spec, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 7")
    agent = LocalElasticAgent(spec("/bin/true", local_world_size=3, virtual_local_rank=True))
    assert agent._device(1) == {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "7"}
    with pytest.raises(ValueError, match=r"^local_rank 2 exceeds available GPUs in CUDA_VISIBLE_DEVICES=4, 7$"):
        agent._device(2)


class Gathering(metrics.MetricHandler):
    def __init__(self):
        self.values = {}

    def emit(self, metric_data):
        self.values[metric_data.name] = metric_data.value


def test_metrics_tell_how_it_went(spec):
    seen = Gathering()
    metrics.configure(seen)
    try:
        LocalElasticAgent(spec(fail_once, max_restarts=1)).run()
    finally:
        metrics.configure(metrics.NullMetricHandler())
    told = {name.removeprefix("workers.trainer."): value for name, value in seen.values.items()}
    expected = {
        "run_total": 1,
        "run_success_with_retries": 1,
        "run_success_no_retries": 0,
        "run_failed_with_retries": 0,
        "run_failed_no_retries": 0,
        "flakiness": 50,
        "remaining_restarts": 0,
        "succeeded": 1,
        "failed": 1,
    }
    assert {name: told.get(name) for name in expected} == expected


@pytest.fixture
def seen(spec):
    """The events that go to the handler `console` from now on."""
    LocalElasticAgent(spec("/bin/true", event_log_handler="console")).run()  # makes its logger
    logger, found = logging.getLogger("torchelastic-events-console"), []
    keeper = logging.Handler()
    keeper.emit = lambda entry: found.append(json.loads(entry.getMessage()))
    logger.addHandler(keeper)
    yield found
    logger.removeHandler(keeper)


def test_events_tell_how_each_worker_ended(spec, seen, tmp_path):
    LocalElasticAgent(spec(fail, str(tmp_path), local_world_size=2, event_log_handler="console")).run()
    steps = ["RENDEZVOUS", "ASSIGN_WORKER_RANKS", "START", "START"]
    assert [event["metadata"]["state"] for event in seen[:4]] == steps
    assert [event["metadata"]["duration_ms"] is None for event in seen[:4]] == [False, False, True, True]
    told = {event["metadata"]["global_rank"]: (event["name"], event["source"]) for event in seen[4:]}
    assert told == {
        None: ("torchelastic.worker.status.SUCCEEDED", "AGENT"),
        0: ("torchelastic.worker.status.TERMINATED", "WORKER"),
        1: ("torchelastic.worker.status.FAILED", "WORKER"),
    }


def miss_a_timer():
    FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]).acquire("step", time.time() - 1)
    time.sleep(60)


def test_a_worker_that_misses_its_timer_is_killed(spec, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ENABLE_FILE_TIMER", "1")
    agent = LocalElasticAgent(spec(miss_a_timer))
    failure = agent.run().failures[0]
    assert failure.exitcode == -signal.SIGKILL
    assert agent._watchdog is None


def ask_health(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
        return answer.status


def test_the_health_check_answers_while_workers_run(spec, monkeypatch):
    port = free_port()
    monkeypatch.setenv("TORCHELASTIC_HEALTH_CHECK_PORT", str(port))
    assert LocalElasticAgent(spec(ask_health, port)).run().return_values == {0: 200}
    with pytest.raises(OSError, match="refused"):
        ask_health(port)


def test_ranks_follow_the_agents_and_roles():
    infos = [RoleInfo("a", 0, 2), RoleInfo("b", 1, 3), RoleInfo("a", 2, 1)]
    found = ranks(infos)
    assert found == [(0, 6, 0, 3), (2, 6, 0, 3), (5, 6, 2, 3)]
    assert (RoleInfo.decode(infos[1].encode()), Ranks.decode(found[1].encode())) == (infos[1], found[1])


class Scripted(SimpleElasticAgent):
    """An agent whose workers do what a list says."""

    def __init__(self, spec, *states, **options):
        super().__init__(spec, **options)
        self.states = list(states)
        self.calls = []

    def _start_workers(self, worker_group):
        self.calls.append("start")
        return {0: "host:1"}

    def _stop_workers(self, worker_group):
        self.calls.append("stop")

    def _monitor_workers(self, worker_group):
        state = self.states.pop(0)
        if isinstance(state, Exception):
            raise state
        return RunResult(state)

    def _await_change(self, timeout):
        self.calls.append("wait")

    def _shutdown(self, death_sig=signal.SIGTERM, timeout=30):
        self.calls.append("shutdown")
        self.ended_by = death_sig, timeout


def test_the_loop_starts_watches_and_starts_again(spec):
    agent = Scripted(spec("x", max_restarts=1), WorkerState.HEALTHY, WorkerState.UNHEALTHY, WorkerState.SUCCEEDED)
    assert agent.run().state is WorkerState.SUCCEEDED
    assert agent.calls == ["start", "wait", "wait", "stop", "start", "wait", "shutdown"]
    assert agent.get_worker_group().workers[0].id == "host:1"


def test_workers_that_were_lost_track_of_are_an_error(spec):
    agent = Scripted(spec("x"), WorkerState.UNKNOWN)
    with pytest.raises(
        RuntimeError, match=r"^\[trainer\] lost track of the workers \(UNKNOWN\); start this node again$"
    ):
        agent.run()
    assert agent.calls[-1] == "shutdown"


def test_the_end_is_by_the_signal_that_the_agent_got(spec):
    agent = Scripted(spec("x"), SignalException("over", signal.SIGINT), shutdown_timeout=7)
    with pytest.raises(SignalException):
        agent.run()
    assert agent.ended_by == (signal.SIGINT, 7)
    agent = Scripted(spec("x"), WorkerState.SUCCEEDED)
    agent.run()
    assert agent.ended_by == (signal.SIGTERM, 30)


def test_a_node_that_is_not_needed_ends_without_an_error(spec, seen):
    agent = Scripted(spec("x", event_log_handler="console"), RendezvousGracefulExitError("spare"))
    assert not agent.run().is_failed()
    assert agent.calls == ["start", "wait", "shutdown"]
    assert [event["metadata"]["state"] for event in seen][-1] == "SUCCEEDED"


def test_events_of_the_agent_itself(spec):
    agent = Scripted(spec("x"), WorkerState.SUCCEEDED)
    event = agent.get_event_succeeded()
    assert (event.name, event.source) == ("torchelastic.worker.status.SUCCEEDED", events.EventSource.AGENT)
    assert event.metadata["raw_error"] is None
    try:
        raise ValueError("boom")
    except ValueError:
        failed = agent.get_event_failed()
    assert (failed.metadata["state"], failed.metadata["raw_error"]) == ("FAILED", "ValueError: boom")
    assert (failed.metadata["run_id"], failed.metadata["role"], failed.metadata["agent_restarts"]) == (
        "job",
        "trainer",
        0,
    )


def test_a_health_check_of_the_callers_own_is_stopped_at_the_end(spec, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_HEALTH_CHECK_PORT", "not looked at")
    server = create_healthcheck_server(time.time, 0, 60)
    server.start()
    where = f"http://127.0.0.1:{server.port}"
    assert urllib.request.urlopen(where, timeout=20).status == 200
    assert not LocalElasticAgent(spec(double, 0), health_check_server=server).run().is_failed()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(where, timeout=20)


def test_specs_are_checked(handler):
    with pytest.raises(AssertionError, match=r"^local_world_size must be greater than 0, got 0$"):
        WorkerSpec("a", 0, handler, entrypoint="x")
    with pytest.raises(AssertionError, match=r"^monitor_interval must be greater than 0 s, got 0$"):
        WorkerSpec("a", 1, handler, entrypoint="x", monitor_interval=0)
    with pytest.raises(AssertionError, match=r"^WorkerSpec needs an entrypoint: a function, or a command$"):
        WorkerSpec("a", 1, handler)
    with pytest.raises(RuntimeError, match=r"^workers are not bound to NUMA nodes here, got numa_options=3; .*numactl"):
        WorkerSpec("a", 1, handler, entrypoint="x", numa_options=3)
    with pytest.warns(DeprecationWarning, match="use WorkerSpec.entrypoint instead"):
        assert WorkerSpec("a", 1, handler, fn=double).get_entrypoint_name() == "double"
    assert WorkerSpec("a", 1, handler, entrypoint="/usr/bin/env").get_entrypoint_name() == "env"


def test_states_and_workers(handler):
    running = [state for state in WorkerState if WorkerState.is_running(state)]
    assert running == [WorkerState.HEALTHY, WorkerState.UNHEALTHY]
    assert str(WorkerState.INIT) == "WorkerState.INIT"
    assert repr(Worker(1)) == "local_rank=1,global_rank=-1,role_rank=-1,world_size=-1,role_world_size=-1"
    group = WorkerGroup(WorkerSpec("a", 2, handler, entrypoint="x"))
    assert ([worker.local_rank for worker in group.workers], group.state) == ([0, 1], WorkerState.INIT)
