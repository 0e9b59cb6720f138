"""A worker that prints a megabyte: `talk.py GO ENDING`, whose ending is `well` or, before a restart, `badly`.

At the end it says in GO.RANK that it has come there.
"""

import os
import sys
from pathlib import Path

for _ in range(16):
    print("x" * (1 << 15))
    print("y" * (1 << 15), file=sys.stderr)
sys.stdout.buffer.write(b"z" * (1 << 15))
Path(f"{sys.argv[1]}.{os.environ['RANK']}").write_text(os.environ["TORCHELASTIC_RESTART_COUNT"])
if sys.argv[2] == "badly" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    raise ValueError("it ends badly")
