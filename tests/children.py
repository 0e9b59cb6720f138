"""A program that starts processes of every kind. Each says its kind, and which package its `torch` is.

Functions import `torch`, not the module: the tests take the names of the kinds from it where there is no `torch`.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

SAYS = "import os, sys, torch; os.write(1, f'{sys.argv[1]} {torch.__spec__.name}\\n'.encode())"
REPLACED = f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', {SAYS!r}, 'exec'])"
TORCHRUN = "import sys; from torch.distributed.run import main; sys.exit(main())"  # as the command `torchrun` has it
COMMANDS = {
    "subprocess": ["-c", SAYS, "subprocess"],
    "without PYTHON's variables": ["-E", "-c", SAYS, "without PYTHON's variables"],
    "isolated": ["-I", "-c", SAYS, "isolated"],
    "exec": ["-c", REPLACED],
}
LAUNCHERS = {
    "torch.distributed.run": ["-m", "torch.distributed.run", __file__, "rank of torch.distributed.run"],
    "torchrun": ["-c", TORCHRUN, __file__, "rank of torchrun"],
}
METHODS = ("spawn", "forkserver", "fork")


def say(kind: str) -> None:
    """Tell of this process. Below Weft, the name of `torch` may be any; its spec has the module that was loaded."""
    import torch

    os.write(1, f"{kind} {torch.__spec__.name}\n".encode())


def say_as_rank(rank: int, kind: str) -> None:
    say(kind)


class Data:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> object:
        import torch

        say("worker of a loader")
        return torch.ones(1)


def main() -> None:
    """Start the processes one after another."""
    import torch

    say("main")
    torch.multiprocessing.spawn(say_as_rank, ("torch.multiprocessing",))
    for method in METHODS:
        process = multiprocessing.get_context(method).Process(target=say, args=(method,))
        process.start()
        process.join()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(say, "pool").result()
    for arguments in COMMANDS.values():
        subprocess.run([sys.executable, *arguments], check=True)


def main_with_computing() -> None:
    """Start what imports more than the name `torch`: launchers, and workers that compute."""
    import torch

    for arguments in LAUNCHERS.values():
        subprocess.run([sys.executable, *arguments], check=True)
    assert [batch.tolist() for batch in torch.utils.data.DataLoader(Data(), num_workers=1)] == [[[1.0]]]


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["computing"]:
            main_with_computing()
        case [kind]:
            say(kind)
