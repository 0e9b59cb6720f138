"""Nodes of a job as real processes: each runs `weft run`, and its workers say where they are, line by line."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading

from tests.waiting import is_gone, until

SECONDS = 30

WORKER = """
import json, os, signal, sys, time
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME",
         "TORCHELASTIC_RESTART_COUNT", "WEFT_RENDEZVOUS_ROUND"]
said = json.dumps({name: os.environ[name] for name in names} | {"pid": os.getpid()})
sys.stdout.write(said + "\\n")  # in one piece, since workers share the pipe
end = time.monotonic() + 60
while not os.path.exists(sys.argv[1]):
    assert time.monotonic() < end, "nobody let the workers end"
    time.sleep(0.01)
"""


class Node:
    """One `weft run`, started with `prefix` in front of its command."""

    def __init__(self, *args, env=None, prefix=()):
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "weft.distributed.run", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (env or {}),
        )
        self.lines = queue.Queue()
        self.errors = []
        self._told, self._shown = threading.Semaphore(0), 0
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stderr, self._note)),
            threading.Thread(target=self._read, args=(self.process.stdout, self.lines.put)),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream, put):
        with stream:
            for line in stream:
                put(line.rstrip("\n"))
        if stream is self.process.stdout:
            put(None)

    def _note(self, line):
        self.errors.append(line)
        self._told.release()

    def error(self):
        """The next line of stderr."""
        assert self._told.acquire(timeout=SECONDS), "nothing is told"
        self._shown += 1
        return self.errors[self._shown - 1]

    def line(self):
        """The next line that workers print."""
        try:
            line = self.lines.get(timeout=SECONDS)
        except queue.Empty:
            line = None
        assert line is not None, f"the workers print no line; stderr: {self.stderr}"
        return line

    def worker(self):
        """What the next worker says of itself."""
        said = json.loads(self.line())
        return {name: int(value) if str(value).isdecimal() else value for name, value in said.items()}

    @property
    def stderr(self):
        return "\n".join(self.errors)

    def end(self):
        """The exit code."""
        try:
            code = self.process.wait(SECONDS)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            for reader in self._readers:
                reader.join()
        return code

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        return self.end()


def until_gone(pid):
    """Wait until a process has ended."""
    until(lambda: is_gone(pid), f"process {pid} is left behind", SECONDS)
