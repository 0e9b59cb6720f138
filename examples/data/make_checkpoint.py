"""Writes `digits_0_to_4.pt`, with PyTorch: a network trained on the digits 0 to 4.

    python examples/data/make_checkpoint.py   # needs torch==2.13.0 and scikit-learn

`examples/fine_tune.py` starts from this file. No other example needs PyTorch.
"""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

FILE = Path(__file__).with_name("digits_0_to_4.pt")


def network() -> nn.Module:
    """The network of `fine_tune.py`, with a head for five classes."""
    body = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    return nn.ModuleDict({"body": body, "head": nn.Linear(128, 5)})


def main() -> None:
    """Train for 20 passes and save the state dict."""
    torch.manual_seed(0)
    data = load_digits()
    chosen = data.target < 5
    images = torch.from_numpy(data.images[chosen, None] / 16).float()
    labels = torch.from_numpy(data.target[chosen])
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(20):
        for rows in torch.randperm(len(labels)).split(64):
            loss = F.cross_entropy(model["head"](model["body"](images[rows])), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        right = model["head"](model["body"](images)).argmax(1) == labels
    torch.save(model.state_dict(), FILE)
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes, accuracy {right.float().mean():.2%} on its training images")


if __name__ == "__main__":
    main()
