"""The process that forks the programs of `forked.py`: `python -m tests.forking FD`.

It has imported weft, and computes nothing. As the socket FD asks, it forks programs and waits for their ends.
"""

from __future__ import annotations

import gc
import json
import os
import random
import socket
import sys

import numpy as np

from weft._base.program import end, run_module, run_text, shortened
from weft.distributed import _preload as _preload

_SIZE = 1 << 17  # of a message


def main():
    own = socket.socket(fileno=int(sys.argv[1]))
    own.set_inheritable(False)
    gc.freeze()
    while True:
        text, descriptors, *_ = socket.recv_fds(own, _SIZE, 3)
        if not text:
            return
        request = json.loads(text)
        if "ended" in request:
            answer = os.waitpid(request["ended"], 0)[1]
        elif not (answer := os.fork()):
            own.close()
            become(descriptors, request["args"], request["env"], request["cwd"])
            return
        for descriptor in descriptors:
            os.close(descriptor)
        own.send(b"%d" % answer)


def become(descriptors, command, environment, folder):
    """Run a program as if this process had been started for it."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    random.seed()
    np.random.seed()
    _, how, name, *args = command
    try:
        (run_module if how == "-m" else run_text)(name, args)
    except (SystemExit, KeyboardInterrupt) as stop:
        shortened(stop, __file__)
        raise
    except BaseException as error:
        end(shortened(error, __file__))


if __name__ == "__main__":
    main()
