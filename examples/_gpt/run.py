"""The state of a training run, as it is saved in checkpoints."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import weft as torch
from _gpt.model import GPT
from _gpt.ranks import Ranks
from _gpt.text import VOCABULARY, Text, Windows, batches


class OtherRunError(Exception):
    """The checkpoint belongs to a run with other settings."""


class Run:
    """A model, its optimizer, the position in the text, and the losses so far."""

    def __init__(self, settings: dict[str, Any], text: Text, ranks: Ranks) -> None:
        torch.use_deterministic_algorithms(True)  # a run that is killed and continued ends with the same bits
        torch.manual_seed(settings["seed"])
        self.settings = settings
        self.model = GPT(VOCABULARY, *(settings[name] for name in ("width", "layers", "heads")))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), settings["lr"], betas=(0.9, 0.95), weight_decay=0.1)
        self.loader = batches(Windows(text.training, settings["context"]), settings["batch"], settings["seed"], ranks)
        self.losses: list[float] = []  # one per step
        self.validation: list[tuple[int, float]] = []  # step, loss

    @property
    def step(self) -> int:
        """The number of steps so far."""
        return len(self.losses)

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self.settings["steps"]

    def batches(self) -> Iterator[torch.Tensor]:
        """The remaining batches, epoch after epoch, in a new order for each epoch."""
        for epoch in count(self.loader.sampler.epoch):
            self.loader.sampler.set_epoch(epoch)
            yield from self.loader

    def save(self, file: Path) -> None:
        """Write a checkpoint. `weft.save` replaces the file in one piece, so a kill leaves the old one intact."""
        state = {
            "settings": self.settings,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loader": self.loader.state_dict(),
            "random": torch.get_rng_state(),
            "losses": self.losses,
            "validation": self.validation,
        }
        torch.save(state, file)

    def load(self, file: Path) -> None:
        """Continue from a checkpoint; `OtherRunError` if its run had other settings."""
        state = torch.load(file)
        theirs = state["settings"]
        other = [f"{name} {theirs.get(name)}" for name, value in self.settings.items() if theirs.get(name) != value]
        if other:
            raise OtherRunError(f"{file}: its run has {', '.join(other)}; give the same, another --out, or --restart")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loader.load_state_dict(state["loader"])
        torch.set_rng_state(state["random"])
        self.losses, self.validation = state["losses"], state["validation"]


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
