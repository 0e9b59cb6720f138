"""A worker that goes through steps with the others, by barriers in their store, until the file GO is there.

The first worker notes the steps in GO.ROUND.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

from weft._comm.stores.tcp_store import TCPStore

go = Path(sys.argv[1])
rank, size, round = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "WEFT_RENDEZVOUS_ROUND"))
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout=timedelta(seconds=60))
said = {"rank": rank, "size": size, "round": round, "restarts": restarts, "pid": os.getpid()}
sys.stdout.write(json.dumps(said) + "\n")
with open(f"{go}.{round}" if rank == 0 else os.devnull, "w") as notes:
    step = 0
    last = False
    while not last:
        step += 1
        time.sleep(0.01)  # the work
        key = f"steps/{round}/{step}"
        if rank == 0:
            store.set(f"{key}/last", str(int(go.exists())))
        last = store.get(f"{key}/last") == b"1"
        store.barrier(key, size)
        if rank == 0:
            os.pwrite(notes.fileno(), b"%d" % step, 0)
