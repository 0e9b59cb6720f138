"""A run of training as checkpoints hold it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import weft as torch
from _gpt.model import GPT
from _gpt.text import VOCABULARY


class OtherRunError(Exception):
    """A checkpoint is of a run with other settings."""


class Run:
    """A model, its optimizer, how far they are, and what was measured on the way."""

    def __init__(self, settings: dict[str, Any]) -> None:
        torch.manual_seed(settings["seed"])
        self.settings = settings
        self.model = GPT(VOCABULARY, *(settings[name] for name in ("width", "layers", "heads")))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), settings["lr"], betas=(0.9, 0.95), weight_decay=0.1)
        self.position = 0  # windows of text seen
        self.losses: list[float] = []  # one per step
        self.validation: list[tuple[int, float]] = []  # step, loss

    @property
    def step(self) -> int:
        """Steps made."""
        return len(self.losses)

    @property
    def finished(self) -> bool:
        """Whether the last step is made."""
        return self.step >= self.settings["steps"]

    def save(self, file: Path) -> None:
        """Write a checkpoint. `weft.save` replaces the file at once, so a killed process leaves the old one whole."""
        state = {
            "settings": self.settings, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(), "position": self.position, "losses": self.losses,
            "validation": self.validation,
        }  # fmt: skip
        torch.save(state, file)

    def load(self, file: Path) -> None:
        """Go on where a checkpoint was written; `OtherRunError` if that run had other settings."""
        state = torch.load(file)
        theirs = state["settings"]
        other = [f"{name} {theirs.get(name)}" for name, value in self.settings.items() if theirs.get(name) != value]
        if other:
            raise OtherRunError(f"{file}: its run has {', '.join(other)}; give the same, another --out, or --restart")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        self.position, self.losses, self.validation = state["position"], state["losses"], state["validation"]


@contextmanager
def noticing_ctrl_c() -> Iterator[Event]:
    """The first Ctrl-C in the block only sets the event, so that a step is completed; the second one stops at once."""
    noticed = Event()

    def notice(*_: object) -> None:
        noticed.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, notice)
    try:
        yield noticed
    finally:
        signal.signal(signal.SIGINT, before)
