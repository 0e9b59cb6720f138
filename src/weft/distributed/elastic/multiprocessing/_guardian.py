"""Kills the process groups of a context when the process that holds the context dies in any way."""

from __future__ import annotations

import logging
import os
import subprocess
import weakref

# Reads `+ GROUP` and `- GROUP` until the pipe's only writer is gone. A shell starts in a millisecond. Unlike
# PR_SET_PDEATHSIG, it also covers children and programs that are not ours, and does not depend on a thread.
_SCRIPT = """
all=
while read -r sign group; do
    kept=
    for known in $all; do [ "$known" = "-$group" ] || kept="$kept $known"; done
    all=$kept
    [ "$sign" = - ] || all="$all -$group"
done
[ -z "$all" ] || kill -s KILL -- $all
[ -z "$1" ] || rm -rf -- "$1"
"""
_log = logging.getLogger(__name__)
_open: weakref.WeakSet[Guardian] = weakref.WeakSet()


class Guardian:
    """A helper process that kills the registered groups (SIGKILL) as soon as this process is gone.

    It also removes `folder`, if one is given.
    """

    def __init__(self, folder: str = "") -> None:
        reader, self._pipe = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "guardian", folder],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that signals to our group do not end the guardian
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(reader)
        _open.add(self)

    def watch(self, group: int) -> None:
        """Register a group to be killed."""
        self._tell("+", group)

    def forget(self, group: int) -> None:
        """Remove a group that has ended; its number may soon be used by another one."""
        self._tell("-", group)

    def _tell(self, sign: str, group: int) -> None:
        try:
            os.write(self._pipe, f"{sign} {group}\n".encode())
        except BrokenPipeError:
            _log.warning("the process that guards the workers was killed; they will outlive a kill of this process")

    def dismiss(self) -> None:
        """End the guardian without killing anything."""
        self._process.kill()
        self._process.wait()
        self.let_go()

    def let_go(self) -> None:
        """Close this process's end of the pipe."""
        _open.discard(self)
        os.close(self._pipe)


def _after_fork() -> None:
    """Close the pipe in a forked child; otherwise the death of its parent would not be noticed."""
    for guardian in list(_open):
        guardian.let_go()


os.register_at_fork(after_in_child=_after_fork)
