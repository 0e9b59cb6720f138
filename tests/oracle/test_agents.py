"""Agents that programs write: one program, run with either framework."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.oracle

PROGRAM = """
import importlib, json, signal, socket, subprocess, sys

name, ended = sys.argv[1:]
elastic = f"{name}.distributed.elastic"
api = importlib.import_module(f"{elastic}.agent.server.api")
local = importlib.import_module(f"{elastic}.agent.server.local_elastic_agent")
errors = importlib.import_module(f"{elastic}.multiprocessing.errors")
rendezvous = importlib.import_module(f"{elastic}.rendezvous")
registry = importlib.import_module(f"{elastic}.rendezvous.registry")

calls = []


class Agent(api.SimpleElasticAgent):
    processes = {}

    def _start_workers(self, worker_group):
        calls.append("start")
        codes = {"fails": 1, "fails once": int(calls.count("start") == 1)}
        for worker in worker_group.workers:
            program = f"raise SystemExit({codes.get(ended, 0) * worker.global_rank})"
            self.processes[worker.local_rank] = subprocess.Popen([sys.executable, "-c", program])
        return {at: process.pid for at, process in self.processes.items()}

    def _stop_workers(self, worker_group):
        calls.append("stop")
        self._end()

    def _monitor_workers(self, worker_group):
        codes = {at: process.poll() for at, process in self.processes.items()}
        if None in codes.values():
            return api.RunResult(api.WorkerState.HEALTHY)
        if ended == "unknown":
            return api.RunResult(api.WorkerState.UNKNOWN)
        ranks = {worker.local_rank: worker.global_rank for worker in worker_group.workers}
        failures = {
            ranks[at]: errors.ProcessFailure(at, self.processes[at].pid, code, "<none>")
            for at, code in codes.items() if code
        }
        if failures:
            return api.RunResult(api.WorkerState.FAILED, failures=failures)
        return api.RunResult(api.WorkerState.SUCCEEDED, {rank: 10 + rank for rank in ranks.values()})

    def _shutdown(self, death_sig=signal.SIGTERM, timeout=30):
        calls.append(f"shutdown {death_sig.name} {timeout}")
        self._end()

    def _end(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


with socket.create_server(("127.0.0.1", 0)) as probe:
    port = probe.getsockname()[1]
handler = registry.get_rendezvous_handler(
    rendezvous.RendezvousParameters("static", f"127.0.0.1:{port}", "job", 1, 1, rank=0)
)
spec = api.WorkerSpec("trainer", 2, handler, entrypoint="worker", max_restarts=1, monitor_interval=0.05)
agent = Agent(spec, exit_barrier_timeout=20, shutdown_timeout=9)
try:
    result = agent.run()
    found = [result.state.name, result.is_failed(), result.return_values]
    found += [sorted((rank, failure.exitcode) for rank, failure in result.failures.items())]
except Exception as error:
    found = ["raised", isinstance(error, RuntimeError) or type(error) is Exception]
group = agent.get_worker_group()
found += [group.state.name, group.group_rank, group.group_world_size, group.master_addr, group.master_port == port]
found += [str(worker) for worker in group.workers]
for event in (agent.get_event_succeeded(), agent.get_event_failed()):
    found += [event.name, event.source.value, event.metadata["rdzv_backend"], event.metadata["agent_restarts"]]
found += [local.TORCHELASTIC_ENABLE_FILE_TIMER, issubclass(local.LocalElasticAgent, api.SimpleElasticAgent)]
print("\\n" + json.dumps([calls, found]))
"""


@pytest.mark.parametrize("ended", ["succeeds", "fails", "fails once", "unknown"])
def test_an_agent_of_ones_own_runs_as_with_pytorch(ended):
    def found(name):
        done = subprocess.run([sys.executable, "-c", PROGRAM, name, ended], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    assert found("weft") == found("torch")
