"""A worker under load that does what it reads, one line at a time: `soaked.py NAME RANK ADDRESS NAMES`.

`forgive NAME`: call a worker again; `look`: print how it goes; `stop`: end the load, and print what is left; `leave`.
"""

from __future__ import annotations

import json
import logging
import sys

from tests.distributed.rpc.leaks import left_in_the_end
from tests.distributed.rpc.load import Load
from weft.distributed import rpc

SECONDS = 30.0


def say(**said):
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def megabytes():
    with open("/proc/self/statm") as sizes:
        return int(sizes.read().split()[1]) * 4096 / (1 << 20)


def main():
    logging.getLogger("weft.distributed.rpc").setLevel(logging.CRITICAL)  # calls to workers that are killed fail
    name, rank, address, names = sys.argv[1:]
    options = rpc.TensorPipeRpcBackendOptions(init_method=address, rpc_timeout=SECONDS)
    rpc.init_rpc(name, rank=int(rank), rpc_backend_options=options)
    load = Load([other for other in names.split(",") if other != name], name)
    say(joined=name, rank=rpc.get_worker_info().id)
    for line in sys.stdin:
        match line.split():
            case ["forgive", other]:
                load.forgive(other)
            case ["look"]:
                say(megabytes=megabytes(), rounds=load.rounds, wrongs=load.wrongs, errors=load.errors)
            case ["stop"]:
                say(stopped=load.stop(SECONDS))
            case ["left"]:
                say(left=left_in_the_end(seconds=SECONDS))
            case ["leave"]:
                break
    rpc.shutdown(timeout=SECONDS)


if __name__ == "__main__":
    main()
