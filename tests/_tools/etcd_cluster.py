"""Members of an etcd cluster as processes."""

import json
import subprocess
import urllib.request
from functools import cached_property

from weft._tools.etcd.client import EtcdClient, EtcdOptions
from weft.distributed.elastic.rendezvous.utils import free_port

PATIENT = EtcdOptions(timeout=20, connect_timeout=20)


class Cluster:
    """Members at one address, each started with `prefix` in front of its command."""

    def __init__(self, folder, size, prefix=(), address="127.0.0.1"):
        self.ports = [free_port() for _ in range(size)]
        peers = [free_port() for _ in range(size)]
        names = ",".join(f"m{at}=http://{address}:{peer}" for at, peer in enumerate(peers))
        self.members = [
            subprocess.Popen(
                [
                    *prefix,
                    "etcd",
                    "--name",
                    f"m{at}",
                    "--data-dir",
                    str(folder / f"m{at}"),
                    "--logger=zap",
                    "--log-level=fatal",
                    "--unsafe-no-fsync",
                    "--heartbeat-interval=50",
                    "--election-timeout=250",
                    f"--listen-client-urls=http://{address}:{port}",
                    f"--advertise-client-urls=http://{address}:{port}",
                    f"--listen-peer-urls=http://{address}:{peers[at]}",
                    f"--initial-advertise-peer-urls=http://{address}:{peers[at]}",
                    f"--initial-cluster={names}",
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for at, port in enumerate(self.ports)
        ]
        self.endpoints = ",".join(f"{address}:{port}" for port in self.ports)

    @cached_property
    def client(self):
        """A client in this process; there is one as soon as the cluster is up."""
        return EtcdClient(self.endpoints, PATIENT)

    def kill_leader(self):
        """SIGKILL; returns its number."""
        self.client.get("up")
        status = [_status(port) for port in self.ports]
        leader = next(at for at, told in enumerate(status) if told["header"]["member_id"] == told["leader"])
        self.members[leader].kill()
        self.members[leader].wait()
        return leader

    def end(self):
        for member in self.members:
            member.kill()
            member.wait()


def _status(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v3/maintenance/status", b"{}", timeout=20) as answer:
        return json.load(answer)
