"""A job on two hosts, with its rendezvous on the first."""

from tests.faults.hosts import ADDRESSES

C10D_PORT = 29400
MISSED, PATIENCE = 1.5, 3  # seconds after which a host is missed, and for which it tries to reach the rendezvous


class Two:
    """The nodes of hosts 0 and 1, either of which may go on alone."""

    def __init__(self, job, hosts, etcd, backend, flags=(), missed=MISSED, patience=PATIENCE):
        self.job, self.hosts = job, hosts
        endpoint, conf = f"{ADDRESSES[0]}:{C10D_PORT}", ""
        if backend == "etcd":
            endpoint, conf = etcd(1, hosts.on(0), ADDRESSES[0]).endpoints, "connect_timeout=20,"
        conf += (
            f"keep_alive_interval={missed / 5},keep_alive_max_attempt=5,heartbeat_timeout=1,"
            f"read_timeout={patience},last_call_timeout=20,close_timeout=2"
        )
        self.nodes = [
            job.run(
                "--nnodes",
                "1:2",
                "--rdzv-backend",
                backend,
                "--rdzv-endpoint",
                endpoint,
                "--rdzv-id",
                "job",
                "--rdzv-conf",
                conf,
                *flags,
                program="steps.py",
                prefix=hosts.on(host),
                WEFT_PRELOAD="",
            )
            for host in range(2)
        ]
        self.workers = self.together()

    def together(self):
        """What the next worker of each host says of itself."""
        return [node.worker() for node in self.nodes]

    def finish(self):
        """Let the workers end, and wait for the nodes that still run."""
        self.job.finish()
        for node in self.nodes:
            if node.process.poll() is None:
                assert node.end() == 0, node.stderr
