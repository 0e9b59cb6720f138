"""Processes that run a program."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from typing import IO

from weft._base.types import Arg
from weft.distributed.elastic.multiprocessing._context import PContext


class SubprocessContext(PContext):
    """Copies of a program; arguments are converted by `str`."""

    def __init__(self, *args: Arg, **options: Arg) -> None:
        super().__init__(*args, **options)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def _launch(self, local_rank: int) -> int:
        with ExitStack() as files:
            process = self._processes[local_rank] = subprocess.Popen(
                [str(self.entrypoint), *(str(arg) for arg in self.args[local_rank])],
                env={**os.environ, **self.envs[local_rank]},
                stdout=_target(self.stdouts[local_rank], files),
                stderr=_target(self.stderrs[local_rank], files),
                start_new_session=True,
            )
        return process.pid

    def _exit_code(self, local_rank: int) -> int | None:
        return self._processes[local_rank].poll()


def _target(path: str, files: ExitStack) -> IO[bytes] | None:
    return files.enter_context(open(path, "wb")) if path else None
