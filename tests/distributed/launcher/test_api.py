"""Launches from Python: what they are told, refused where it is written, and what they raise."""

import os

import pytest

from weft.distributed import launch, run
from weft.distributed.elastic.agent.server.health_check_server import create_healthcheck_server
from weft.distributed.elastic.multiprocessing.errors import ChildFailedError
from weft.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from weft.distributed.elastic.rendezvous.utils import free_port
from weft.distributed.launcher import LaunchConfig, elastic_launch


@pytest.mark.parametrize(
    ("args", "options", "kind", "message"),
    [
        ((2, 1, 1), {}, ValueError, r"^The maximum number of rendezvous nodes \(1\) must be greater than or equal to"),
        ((0, 1, 1), {}, ValueError, r"^The minimum number of rendezvous nodes \(0\) must be greater than zero\.$"),
        ((1, 1, "2"), {}, TypeError, r"^LaunchConfig: nproc_per_node must be an int, got '2'$"),
        ((1, "1", 1), {}, TypeError, r"^LaunchConfig: max_nodes must be an int, got '1'$"),
        ((1, 1, 0), {}, ValueError, r"^LaunchConfig: nproc_per_node must be at least 1, got 0$"),
        ((1, 1, 1), {"shutdown_timeout": -1}, ValueError, r"^shutdown_timeout must be non-negative, got -1$"),
        ((1, 1, 1), {"numa_options": "node"}, RuntimeError, r"^workers are not bound to NUMA nodes here, got "),
        ((1, 1, 1), {"event_log_handler": "x"}, KeyError, r"^no event destination is called 'x'; there are console, "),
    ],
)
def test_a_launch_that_cannot_be_is_refused(args, options, kind, message):
    with pytest.raises(kind, match=message):
        LaunchConfig(*args, **options)


@pytest.fixture
def config(monkeypatch):
    for name in ("WEFT_JOB_KEY", "OMP_NUM_THREADS", "TORCHELASTIC_SIGNALS_TO_HANDLE"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # launches set them; this undoes it
    return LaunchConfig(
        1, 1, 1, run_id="job", rdzv_backend="static", rdzv_endpoint=f"127.0.0.1:{free_port()}",
        rdzv_configs={"rank": 0}, max_restarts=0,
    )  # fmt: skip


@pytest.mark.parametrize("main", [run.main, launch.main])
@pytest.mark.filterwarnings("ignore:weft.distributed.launch is deprecated:FutureWarning")
def test_a_launch_with_arguments_raises_and_does_not_exit(main, config):
    with pytest.raises(ChildFailedError, match=r"^rank 0 on .*: exit code 1 "):
        main(["--no-python", "--use-env", "false"] if main is launch.main else ["--no-python", "false"])
    with pytest.raises(ValueError, match=r"^Unsupported nproc_per_node value: many"):
        main(["--nproc-per-node", "many", __file__])


def test_a_rendezvous_that_cannot_be_shut_down_does_not_hide_the_failure(config, monkeypatch, caplog):
    ended = StaticTCPRendezvous.shutdown

    def shutdown(handler):
        ended(handler)
        raise ConnectionError("gone")

    monkeypatch.setattr(StaticTCPRendezvous, "shutdown", shutdown)
    with pytest.raises(ChildFailedError):
        elastic_launch(config, "false")()
    assert "the rendezvous of job job cannot be shut down: ConnectionError('gone')" in caplog.text


def test_a_health_check_of_the_callers_own_is_handed_on(config):
    server = create_healthcheck_server(lambda: 0.0, 0, 60)
    server.start()
    assert elastic_launch(config, "true", server)() == {0: None}
    assert server.port == 0  # it was stopped
