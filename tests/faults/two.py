"""A job on two hosts, with its rendezvous on the first."""

from tests.faults.hosts import ADDRESSES

C10D_PORT = 29400
MISSED, PATIENCE = 1.5, 3  # seconds after which a host is missed, and for which it tries to reach the rendezvous


class Two:
    """The nodes of hosts 0 and 1, either of which may go on alone. For a program with groups, they are machines."""

    def __init__(self, job, hosts, etcd, backend, flags=(), missed=MISSED, patience=PATIENCE, program="steps.py"):
        self.job, self.hosts = job, hosts
        endpoint, conf = f"{ADDRESSES[0]}:{C10D_PORT}", ""
        if backend == "etcd":
            endpoint, conf = etcd(1, hosts.on(0), ADDRESSES[0]).endpoints, "connect_timeout=20,"
        conf += (
            f"keep_alive_interval={missed / 5},keep_alive_max_attempt=5,heartbeat_timeout=1,"
            f"read_timeout={patience},last_call_timeout=20,close_timeout=2"
        )
        self._flags = ("--nnodes", "1:2", "--rdzv-backend", backend, "--rdzv-endpoint", endpoint, "--rdzv-id", "job")
        self._flags += ("--rdzv-conf", conf, *flags)
        self._program = program
        self.nodes = [self._start(host) for host in range(2)]
        self.workers = self.together()

    def _start(self, host):
        prefix, env = self.hosts.on(host), {"WEFT_PRELOAD": ""}
        if self._program == "members.py":
            home = self.job.folder / f"home{host}"
            home.mkdir(exist_ok=True)
            prefix = self.hosts.machine(host, self.job.folder)
            env = {"HOME": str(home), "WEFT_JOB_KEY": "the key of the tests", "WEFT_COMPILE_CACHE": ""}
        return self.job.run(*self._flags, program=self._program, prefix=prefix, **env)

    def come_back(self, host):
        """Start the node of a host again."""
        self.nodes[host] = self._start(host)

    def together(self):
        """What the next worker of each host says of itself."""
        return [node.worker() for node in self.nodes]

    def finish(self):
        """Let the workers end, and wait for the nodes that still run."""
        self.job.finish()
        for node in self.nodes:
            if node.process.poll() is None:
                assert node.end() == 0, node.stderr
