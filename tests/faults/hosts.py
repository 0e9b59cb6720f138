"""Two hosts as network namespaces, and the link between them."""

import os
import signal
import subprocess
import uuid
from contextlib import suppress

from tests.waiting import until

ADDRESSES = ("10.77.0.1", "10.77.0.2")
IPV6_ADDRESSES = ("fd77::1", "fd77::2")
BESIDE = "172.31.77.1"  # of an interface that each host has for itself, as those of containers are
NOBODY = "02:00:00:00:00:99"


def ip(*args):
    return subprocess.run(["ip", *args], check=True, capture_output=True, text=True).stdout


_MACHINE = """
hostname "$0" && mount --bind "$1" /etc/hosts && mount --bind "$2" /proc/sys/kernel/random/boot_id &&
mount -t tmpfs weft-faults /dev/shm && shift 2 && exec "$@"
"""


class Hosts:
    """Hosts 0 and 1; `cut` and `heal` the link in one of several ways."""

    WAYS = ("down at 0", "down at 1", "silent")
    NAMES = ("unknown", "loopback", "beside", "known")
    """What a machine's own name resolves to: nothing, 127.0.1.1 as in Debian, an address that no other host reaches, or
    its address on the link."""

    def __init__(self, name, addresses=ADDRESSES):
        self.addresses = addresses
        self._names = [f"weft-{name}-{at}" for at in range(2)]
        made = []
        try:
            for host in self._names:
                ip("netns", "add", host)
                made.append(host)
            first, second = self._names
            ip("link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns", second)
            for host, address in zip(self._names, addresses, strict=True):
                ip("-n", host, "link", "set", "lo", "up")
                ip("-n", host, "link", "add", "aside0", "type", "veth", "peer", "name", "nowhere")
                ip("-n", host, "link", "set", "nowhere", "up")
                ip("-n", host, "addr", "add", f"{BESIDE}/24", "dev", "aside0")
                ip("-n", host, "link", "set", "aside0", "up")
                ip("-n", host, "addr", "add", f"{address}/24", "dev", "eth0", *["nodad"] * (":" in address))
                ip("-n", host, "link", "set", "eth0", "up")
        except subprocess.CalledProcessError:
            for host in made:
                ip("netns", "del", host)
            raise

    def on(self, host):
        """What a command begins with that is to run on the host."""
        return ("ip", "netns", "exec", self._names[host])

    def machine(self, host, folder, names="unknown"):
        """As `on`, with a kernel, a name, names of hosts and shared memory of its own."""
        name = f"machine{host}"
        address = {"unknown": "", "loopback": "127.0.1.1", "beside": BESIDE, "known": self.addresses[host]}[names]
        known, kernel = folder / f"hosts.{host}", folder / f"kernel.{host}"
        known.write_text(f"127.0.0.1 localhost\n{f'{address} {name}' if address else ''}\n")
        kernel.write_text(f"{uuid.uuid5(uuid.NAMESPACE_DNS, name)}\n")
        return (*self.on(host), "unshare", "--uts", "--mount", "--ipc", "sh", "-c", _MACHINE, name, known, kernel)

    def cut(self, way):
        """Cut the link: an end of it goes down, or what is sent reaches nobody."""
        if way == "silent":
            for host, other in ((0, ADDRESSES[1]), (1, ADDRESSES[0])):
                neighbour = ("neigh", "replace", other, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
                ip("-n", self._names[host], *neighbour)
        else:
            ip("-n", self._names[int(way[-1])], "link", "set", "eth0", "down")

    def heal(self, way):
        """Undo a cut."""
        if way == "silent":
            for host, other in ((0, ADDRESSES[1]), (1, ADDRESSES[0])):
                ip("-n", self._names[host], "neigh", "del", other, "dev", "eth0")
        else:
            ip("-n", self._names[int(way[-1])], "link", "set", "eth0", "up")

    def remove(self):
        """Take the hosts away; nothing may run on them any more, and what does is ended."""
        try:
            for host in self._names:
                until(lambda host=host: not _processes(host), f"processes are left on {host}")
        finally:
            for host in self._names:
                for process in _processes(host):
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                ip("netns", "del", host)
        assert not set(self._names) & {line.split()[0] for line in ip("netns", "list").splitlines()}


def _processes(host):
    return [int(number) for number in ip("netns", "pids", host).split()]
