"""Which module PyTorch says that its public classes and functions are from, by the package that shows them.

`python -m tests.drop_in.names` records it, with PyTorch. Run as a program, it prints what `torch` is in its process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

FILE = Path(__file__).parent / "names.json"
RECORDED: dict[str, dict[str, str]] = json.loads(FILE.read_text())
"""By package and module, the names; a package that is added, with `{}`, is recorded, too."""


def homes() -> dict[str, dict[str, str]]:
    """By package and module: the names of the public classes and functions, those of compiled code left out."""
    packages = {name: import_module(name) for name in RECORDED}
    found: dict[str, dict[str, list[str]]] = {package: {} for package in packages}
    for package, module in packages.items():
        for name in sorted({*dir(module), *getattr(module, "__all__", ())}):
            obj = getattr(module, name, None)
            home = getattr(obj, "__module__", None) if callable(obj) and hasattr(obj, "__name__") else None
            if name.startswith("_") or home is None or home.partition(".")[0] not in ("torch", "weft"):
                continue
            if isinstance(obj, type) or not home.startswith("torch._C"):
                found[package].setdefault(home, []).append(name)
    return {package: {home: " ".join(names) for home, names in by.items()} for package, by in found.items()}


def unfound() -> list[str]:
    """The classes that are not found where they say that they are from."""
    return [
        f"{kind.__module__}.{kind.__qualname__}"
        for package in RECORDED
        for kind in vars(sys.modules[package]).values()
        if isinstance(kind, type)
        and kind.__module__.partition(".")[0] == "torch"
        and getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is not kind
    ]


def main() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", __file__], capture_output=True, text=True, check=True)
    FILE.write_text(json.dumps(json.loads(done.stdout)[0], indent=1) + "\n")


if __name__ == "__main__":
    if __spec__ is None:
        warnings.simplefilter("ignore")
        print(json.dumps([homes(), unfound()]))
    else:
        main()
