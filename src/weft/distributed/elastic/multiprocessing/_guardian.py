"""Ends the process groups of a context when the process that holds the context dies, however it dies."""

from __future__ import annotations

import logging
import os
import subprocess
import weakref

# Reads `+ GROUP` and `- GROUP` until the pipe's only writer is gone. A shell starts in a millisecond, and unlike
# PR_SET_PDEATHSIG this covers programs that are not ours and their children, and heeds no thread's end.
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
    """A helper process that kills the groups it knows (SIGKILL) as soon as this process is gone.

    It also removes `folder`, where one is given.
    """

    def __init__(self, folder: str = "") -> None:
        reader, self._pipe = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "guardian", folder],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # what ends our group must not end the guardian
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(reader)
        _open.add(self)

    def watch(self, group: int) -> None:
        """Kill this group as well."""
        self._tell("+", group)

    def forget(self, group: int) -> None:
        """The group has ended; its number may soon belong to another."""
        self._tell("-", group)

    def _tell(self, sign: str, group: int) -> None:
        try:
            os.write(self._pipe, f"{sign} {group}\n".encode())
        except BrokenPipeError:
            _log.warning("the process that guards the workers was killed; they will outlive a kill of this process")

    def dismiss(self) -> None:
        """End the guardian; it kills nothing."""
        self._process.kill()
        self._process.wait()
        self.let_go()

    def let_go(self) -> None:
        """Close this process's end of the pipe."""
        _open.discard(self)
        os.close(self._pipe)


def _after_fork() -> None:
    """A forked child must not keep the pipe open, or its parent's death would go unnoticed."""
    for guardian in list(_open):
        guardian.let_go()


os.register_at_fork(after_in_child=_after_fork)
