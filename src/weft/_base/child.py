"""What a process that `multiprocessing` starts afresh runs in place of the program of its parent.

Such a process imports the parent's program before it unpickles anything, by the name in `__main__.__spec__` if there is
one. This module's name stands there, so that `torch` is Weft in the child, too, before it runs the program.
"""

from __future__ import annotations

import os
from importlib.machinery import ModuleSpec

from weft._base.program import code_of, is_source
from weft._base.torch_alias import install_if_inherited

_PROGRAM = "WEFT_PROGRAM"


def spec_for(script: str) -> ModuleSpec | None:
    """What `__main__.__spec__` is while this process runs a script; None for folders and archives."""
    if not os.path.isfile(script) or not is_source(script):
        return None
    os.environ[_PROGRAM] = os.path.abspath(script)
    return ModuleSpec("weft._base.child", None)


if __name__ == "__mp_main__":
    install_if_inherited()
    __file__ = os.environ[_PROGRAM]
    exec(code_of(__file__), globals())
