"""Train a character-level GPT on the source of Python's standard library, in under two minutes on two cores.

    python examples/train_gpt.py            # train, draw the loss, write a sample
    python examples/train_gpt.py            # again: continues a run that was stopped or killed
    python examples/train_gpt.py --help

    weft run --standalone --nproc-per-node 2 --max-restarts 3 examples/train_gpt.py     # in two processes

It is an ordinary PyTorch program. Operators are recorded and run as one compiled program per step; a learning rate
that changes in every step causes no recompilation. Several processes share each batch, and average their gradients.
When one dies, the launcher restarts all of them, and they continue from the last checkpoint.
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
from _gpt.ranks import Ranks
from _gpt.report import Report
from _gpt.run import OtherRunError, Run, noticing_ctrl_c
from _gpt.sample import continued
from _gpt.text import VOCABULARY, Text, Windows, batches
from weft import nn
from weft.nn import functional as F

CHECKPOINT, SAMPLE, CURVE, PICTURE, PROCESSES = "checkpoint.pt", "sample.txt", "loss.txt", "loss.png", "processes.txt"


def main() -> int:
    """Train, or continue training; returns the exit status."""
    given = options()
    folder: Path = given.out
    folder.mkdir(parents=True, exist_ok=True)
    ranks = Ranks.joined()
    if given.batch % ranks.size:
        raise SystemExit(f"--batch {given.batch} cannot be shared by {ranks.size} processes: give a multiple")
    if given.restart and not ranks.restarts:
        for name in (CHECKPOINT, SAMPLE, CURVE, PICTURE):
            (folder / name).unlink(missing_ok=True)

    text = Text.of_standard_library()
    run = Run({**settings_of(given), "text checksum": text.checksum()}, text, ranks)
    if (folder / CHECKPOINT).exists():
        run.load(folder / CHECKPOINT)
    report = Report(run, quiet=ranks.rank > 0)
    if run.finished and (folder / SAMPLE).exists():
        report.say(f"{folder} holds a finished run of {run.step} steps; --restart trains anew")
        return 0
    report.say(f"{len(text.training):,} characters, {sum(p.numel() for p in run.model.parameters()):,} parameters")
    if run.step:
        report.say(f"going on at step {run.step} of {folder / CHECKPOINT}")

    train(run, text, ranks, report, folder, given.checkpoint_every)
    if not run.finished:
        report.say(f"stopped at step {run.step}; the same command goes on from there")
        return 130
    if ranks.rank == 0:
        show(run, text, report, folder)
    return 0


def train(run: Run, text: Text, ranks: Ranks, report: Report, folder: Path, every: int) -> None:
    """Train to the last step, or until Ctrl-C, with a checkpoint at the end and every few steps."""
    processes = ranks.processes()
    if ranks.rank == 0:
        (folder / PROCESSES).write_text("".join(f"{number}\n" for number in processes), "utf-8")
    model = ranks.replica(run.model)
    with noticing_ctrl_c() as interrupted, report:
        for tokens in islice(run.batches(), run.settings["steps"] - run.step):
            loss, stopping = ranks.mean(learn(run, model, tokens), interrupted.is_set())
            run.losses.append(loss)
            report.stepped()
            due = run.step % every == 0 or run.finished
            if due:
                run.validation.append((run.step, validation_loss(run, text, ranks)))
            if (due or stopping) and ranks.rank == 0:
                run.save(folder / CHECKPOINT)
                report.checkpointed()
            if stopping:
                break
    report.ended()


def learn(run: Run, model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """One step of training on this process's share of a batch; returns its loss."""
    for group in run.optimizer.param_groups:
        group["lr"] = learning_rate(run.step, run.settings["steps"], run.settings["lr"])
    loss = loss_of(model, tokens)
    run.optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    run.optimizer.step()
    return loss


def learning_rate(step: int, steps: int, highest: float) -> float:
    """Linear warmup over the first twentieth of the steps, then cosine decay to a tenth."""
    warmup = max(1, steps // 20)
    if step < warmup:
        return highest * (step + 1) / warmup
    return highest * (0.55 + 0.45 * math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy, in nats per character, of each token after the first of `uint8[batch, time + 1]`."""
    tokens = tokens.long()
    return F.cross_entropy(model(tokens[:, :-1]).reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


@torch.no_grad()
def validation_loss(run: Run, text: Text, ranks: Ranks) -> float:
    """The mean loss on 16 fixed batches of the validation text."""
    loader = batches(Windows(text.validation, run.settings["context"]), run.settings["batch"], 0, ranks)
    (mean,) = ranks.mean(statistics.fmean(loss_of(run.model, tokens).item() for tokens in islice(loader, 16)))
    return mean


def show(run: Run, text: Text, report: Report, folder: Path) -> None:
    """Plot the losses and write a sample. The sample's file is written last, so it marks a finished run."""
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
