"""A new process up to its first finished `gpt` step: `python -m bench.first_step FRAMEWORK [compiled]`."""

from __future__ import annotations

import importlib
import sys

from bench import workloads


def main() -> None:
    framework, *options = sys.argv[1:]
    module = importlib.import_module(framework)
    if framework == "torch":
        module.set_num_threads(2)
    run = workloads.gpt(module, compiled=True) if options else workloads.gpt(module)
    run()


if __name__ == "__main__":
    main()
