"""Classify handwritten digits with a small convolutional network.

    python examples/digits.py
    python examples/digits.py --workers 1   # another process makes the batches
    python examples/digits.py --help

Shows a custom dataset, `random_split`, a `DataLoader` with or without workers, AdamW with a one-cycle schedule, which
changes the learning rate in every step, evaluation on held-out images, and the best weights saved as a safetensors
file. A full run takes 5 s of processor time, 13 s with an empty cache of compiled programs. It printed

    epoch 1: loss 1.7517, accuracy 81.89%
    epoch 15: loss 0.0023, accuracy 99.44%
    runs/digits.safetensors: accuracy 99.72% on 359 held-out images
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import weft as torch
from _digits import Digits
from _progress import progress
from weft import nn
from weft.nn import functional as F
from weft.serialization import load_file, save_file
from weft.utils.data import DataLoader, random_split


def options() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(
        description="Classify handwritten digits.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training images")
    parser.add_argument("--batch", type=int, default=64, help="images in a step")
    parser.add_argument("--width", type=int, default=32, help="channels of the first convolution")
    parser.add_argument("--lr", type=float, default=1e-2, help="highest learning rate")
    parser.add_argument("--workers", type=int, default=0, help="processes that make batches; 0: none but this one")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights, the split and the order of images")
    parser.add_argument("--out", type=Path, default=Path("runs/digits.safetensors"), help="file of the best weights")
    return parser.parse_args()


class Net(nn.Sequential):
    """Two convolutions, each with normalisation and pooling, and a linear classifier."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.25),
            nn.Linear(2 * width * 2 * 2, 10),
        )


def train(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, schedule: object) -> float:
    """One pass over the training images; returns the mean loss."""
    model.train()
    total = torch.zeros(())
    for images, labels in loader:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.detach()  # without `item()`, the loop does not wait for the loss
    return total.item() / len(loader)


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    """The share of images that the model classifies correctly."""
    model.eval()
    right = torch.tensor(0)
    for images, labels in loader:
        right += (model(images).argmax(1) == labels).sum()
    return right.item() / len(loader.dataset)


def main() -> None:
    """Train, save the best weights, and load them again."""
    given = options()
    torch.manual_seed(given.seed)
    training, held_out = random_split(Digits(), [0.8, 0.2])
    settings = {"batch_size": given.batch, "num_workers": given.workers, "persistent_workers": given.workers > 0}
    loader = DataLoader(training, shuffle=True, drop_last=True, **settings)
    test_loader = DataLoader(held_out, **settings)
    model = Net(given.width)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, given.lr, epochs=given.epochs, steps_per_epoch=len(loader)
    )

    given.out.parent.mkdir(parents=True, exist_ok=True)
    start, best = time.perf_counter(), -1.0
    for epoch in progress(range(1, given.epochs + 1), "epochs"):
        loss = train(model, loader, optimizer, schedule)
        found = accuracy(model, test_loader)
        if found > best:
            best = found
            save_file(model.state_dict(), given.out, {"epoch": str(epoch)})
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {found:.2%}")
    print(f"trained for {time.perf_counter() - start:.1f} s")

    kept = Net(given.width)
    kept.load_state_dict(load_file(given.out))
    print(f"{given.out}: accuracy {accuracy(kept, test_loader):.2%} on {len(held_out)} held-out images")


if __name__ == "__main__":
    main()
