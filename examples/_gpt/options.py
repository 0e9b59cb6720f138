"""The command line of `train_gpt.py`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

_SETTINGS = (
    ("steps", 1000, "steps of training"),
    ("batch", 8, "windows of text in a step"),
    ("context", 128, "characters in a window"),
    ("width", 128, "width of the model"),
    ("layers", 4, "layers of the model"),
    ("heads", 4, "attention heads of a layer"),
    ("lr", 3e-3, "highest learning rate"),
    ("seed", 0, "seed of the weights, the order of the text, and the sample"),
)


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(description="Train a character-level GPT on the source of the standard library.")
    for name, default, help in _SETTINGS:
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{help} (default: {default})")
    parser.add_argument("--out", type=Path, default=Path("runs/gpt"), help="folder of the run (default: %(default)s)")
    parser.add_argument(
        "--checkpoint-every",
        type=int,
        default=200,
        metavar="STEPS",
        help="steps between checkpoints, which also measure the validation loss (default: %(default)s)",
    )
    parser.add_argument("--restart", action="store_true", help="discard the run in the folder")
    return parser.parse_args(arguments)


def settings_of(options: argparse.Namespace) -> dict[str, float]:
    """The options that determine the final weights; a run is continued only with the same ones."""
    return {name: getattr(options, name) for name, *_ in _SETTINGS}
