"""Train a character-level GPT on the source of Python's standard library, in under two minutes on two cores.

    python examples/train_gpt.py            # train, draw the loss, write a sample
    python examples/train_gpt.py            # again: goes on where the last one was stopped or killed
    python examples/train_gpt.py --help

It is an ordinary PyTorch program. Operators are recorded and run as one compiled program per step; a learning rate
that changes in every step compiles nothing anew.
"""

from __future__ import annotations

import math
import statistics
import sys
from itertools import islice
from pathlib import Path

import weft as torch
from _gpt.curve import drawn, plot
from _gpt.options import options, settings_of
from _gpt.report import Report
from _gpt.run import OtherRunError, Run, noticing_ctrl_c
from _gpt.sample import continued
from _gpt.text import VOCABULARY, Shuffled, Text, Windows, batches
from weft import nn
from weft.nn import functional as F

CHECKPOINT, SAMPLE, CURVE, PICTURE = "checkpoint.weft", "sample.txt", "loss.txt", "loss.png"


def main() -> int:
    """Train, or go on training; returns the exit status."""
    given = options()
    folder: Path = given.out
    folder.mkdir(parents=True, exist_ok=True)
    if given.restart:
        for name in (CHECKPOINT, SAMPLE, CURVE, PICTURE):
            (folder / name).unlink(missing_ok=True)

    text = Text.of_standard_library()
    run = Run({**settings_of(given), "text checksum": text.checksum()})
    if (folder / CHECKPOINT).exists():
        run.load(folder / CHECKPOINT)
    report = Report(run)
    if run.finished and (folder / SAMPLE).exists():
        report.say(f"{folder} holds a finished run of {run.step} steps; --restart trains anew")
        return 0
    report.say(f"{len(text.training):,} characters, {sum(p.numel() for p in run.model.parameters()):,} parameters")
    if run.step:
        report.say(f"going on at step {run.step} of {folder / CHECKPOINT}")

    train(run, text, report, folder / CHECKPOINT, given.checkpoint_every)
    if not run.finished:
        report.say(f"stopped at step {run.step}; the same command goes on from there")
        return 130
    show(run, text, report, folder)
    return 0


def train(run: Run, text: Text, report: Report, checkpoint: Path, every: int) -> None:
    """Train to the last step, or until Ctrl-C, with a checkpoint at the end and every few steps."""
    windows = Windows(text.training, run.settings["context"])
    order = Shuffled(windows, run.settings["seed"], run.position)
    with noticing_ctrl_c() as interrupted, report:
        for tokens in islice(batches(windows, order, run.settings["batch"]), run.settings["steps"] - run.step):
            learn(run, tokens)
            report.stepped()
            due = run.step % every == 0 or run.finished
            if due:
                run.validation.append((run.step, validation_loss(run, text)))
            if due or interrupted.is_set():
                run.save(checkpoint)
                report.checkpointed()
            if interrupted.is_set():
                break
    report.ended()


def learn(run: Run, tokens: torch.Tensor) -> None:
    """One step of training on a batch of windows."""
    for group in run.optimizer.param_groups:
        group["lr"] = learning_rate(run.step, run.settings["steps"], run.settings["lr"])
    loss = loss_of(run.model, tokens)
    run.optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
    run.optimizer.step()
    run.position += len(tokens)
    run.losses.append(loss.item())


def learning_rate(step: int, steps: int, highest: float) -> float:
    """Up in a line over the first twentieth of the steps, then down to a tenth along a cosine."""
    warmup = max(1, steps // 20)
    if step < warmup:
        return highest * (step + 1) / warmup
    return highest * (0.55 + 0.45 * math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy, in nats per character, of each token after the first of `uint8[batch, time + 1]`."""
    tokens = tokens.long()
    return F.cross_entropy(model(tokens[:, :-1]).reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


@torch.no_grad()
def validation_loss(run: Run, text: Text) -> float:
    """The mean loss on 16 batches of the validation text, always the same."""
    windows = Windows(text.validation, run.settings["context"])
    loader = batches(windows, Shuffled(windows, seed=0, position=0), run.settings["batch"])
    return statistics.fmean(loss_of(run.model, tokens).item() for tokens in islice(loader, 16))


def show(run: Run, text: Text, report: Report, folder: Path) -> None:
    """Draw the losses and write a sample; the sample's file comes last and marks a finished run."""
    curve = drawn(run.losses)
    print(f"\n{curve}\n")
    (folder / CURVE).write_text(curve + "\n", "utf-8")
    try:
        plot(run.losses, run.validation, folder / PICTURE)
    except ImportError:
        report.say(f"no {PICTURE}: it needs matplotlib (pip install weft[plot])")
    prompt = text.prompt(run.settings["context"])
    sample = prompt[prompt.rindex("\n") + 1 :] + continued(run.model, prompt, 400)
    print(f"{sample}\n")
    (folder / SAMPLE).write_text(sample + "\n", "utf-8")
    report.say_compilations()
    report.say(f"validation loss {run.validation[-1][1]:.3f}; everything is in {folder}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except OtherRunError as error:
        sys.exit(str(error))
