"""The leader of three etcd members is killed."""

import os
import signal

from tests.faults.job import Progress

CONF = "keep_alive_interval=0.3,keep_alive_max_attempt=5,heartbeat_timeout=1,connect_timeout=20,last_call_timeout=20"


def test_the_job_goes_on(job, etcd, run):
    three = etcd(3)
    nodes = [
        job.run(
            "--nnodes",
            2,
            "--rdzv-backend",
            "etcd",
            "--rdzv-endpoint",
            three.endpoints,
            "--rdzv-id",
            "job",
            "--rdzv-conf",
            CONF,
            "--local-addr",
            "127.0.0.1",
            "--max-restarts",
            1,
            program="steps.py",
            WEFT_PRELOAD="",
        )
        for _ in range(2)
    ]
    workers = [node.worker() for node in nodes]
    assert {said["round"] for said in workers} == {0}
    three.kill_leader()
    Progress(job, 0).goes_on()
    os.kill(workers[run % 2]["pid"], signal.SIGKILL)
    assert {node.worker()["round"] for node in nodes} == {1}  # one round on: nobody was missed meanwhile
    Progress(job, 1).goes_on()
    job.finish()
    assert [node.end() for node in nodes] == [0, 0], nodes[0].stderr + nodes[1].stderr
