"""Fine-tune a network that PyTorch has trained: from the digits 0 to 4 to the digits 5 to 9.

    python examples/fine_tune.py
    python examples/fine_tune.py --per-class 10   # with more images of each new digit
    python examples/fine_tune.py --help

`data/digits_0_to_4.pt` is a state dict that `torch.save` of PyTorch 2.13 wrote (`data/make_checkpoint.py`). It is
loaded without PyTorch. First a new head is trained on a frozen body, whose running statistics do not change either.
Then all layers are trained, the body at a lower rate. For comparison, a network is trained from scratch on the same
images. A full run takes 4 s of processor time, 13 s with an empty cache of compiled programs. It printed

    digits_0_to_4.pt: accuracy 100.00% on the digits 0 to 4
    digits 5 to 9: 15 images to train with, 881 held out
    new head: accuracy 20.09%
    trained head: accuracy 90.35%
    trained all layers: accuracy 92.05%
    from scratch, in as many steps: accuracy 86.83%
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

CHECKPOINT = Path(__file__).parent / "data" / "digits_0_to_4.pt"


def options() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(
        description="Fine-tune a network of PyTorch's.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT, help="the state dict to start from")
    parser.add_argument("--per-class", type=int, default=3, help="training images of each new digit")
    parser.add_argument("--steps", type=int, default=100, help="steps of training with a frozen body, and without")
    parser.add_argument("--lr", type=float, default=1e-2, help="learning rate of the head; the body's is a tenth")
    parser.add_argument("--seed", type=int, default=0, help="seed of new weights and of the choice of images")
    return parser.parse_args()


class Net(nn.Module):
    """Two convolutions, and a linear classifier."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
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
        self.head = nn.Linear(128, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(images))


Part = tuple[torch.Tensor, torch.Tensor]
"""Images and labels."""


def divided(digits: range, per_class: int, seed: int) -> tuple[Part, Part]:
    """Training images, this number for each digit, and all other images. Labels count from 0."""
    data = Digits(digits)
    images, labels = torch.from_numpy(data.images), torch.from_numpy(data.labels) - digits.start
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    images, labels = images[order], labels[order]
    place = F.one_hot(labels).cumsum(0).gather(1, labels.unsqueeze(1)).squeeze(1)  # its number within its digit, from 1
    few = place <= per_class
    return (images[few], labels[few]), (images[~few], labels[~few])


def train(model: Net, part: Part, groups: list[dict], steps: int, description: str) -> None:
    """Train the parameters of `groups` on all images of a part at once."""
    images, labels = part
    optimizer = torch.optim.AdamW(groups, weight_decay=1e-2)
    for _ in progress(range(steps), description):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: Net, part: Part) -> float:
    """The share of images that the model classifies correctly."""
    model.eval()
    images, labels = part
    return (model(images).argmax(1) == labels).float().mean().item()


def main() -> None:
    """Load the network, replace its head, train the head, then train all layers."""
    given = options()
    torch.manual_seed(given.seed)
    start = time.perf_counter()
    model = Net(classes=5)
    model.load_state_dict(torch.load(given.checkpoint))
    known, _ = divided(range(5), per_class=1000, seed=given.seed)
    print(f"{given.checkpoint.name}: accuracy {accuracy(model, known):.2%} on the digits 0 to 4")

    training, held_out = divided(range(5, 10), given.per_class, given.seed)
    print(f"digits 5 to 9: {len(training[1])} images to train with, {len(held_out[1])} held out")
    model.head = nn.Linear(128, 5)
    scratch = Net(classes=5)
    print(f"new head: accuracy {accuracy(model, held_out):.2%}")

    model.body.requires_grad_(False)  # its statistics are fixed, too: `accuracy` has set eval mode
    train(model, training, [{"params": model.head.parameters(), "lr": given.lr}], given.steps, "head")
    print(f"trained head: accuracy {accuracy(model, held_out):.2%}")

    model.body.requires_grad_(True)
    head = {"params": model.head.parameters(), "lr": given.lr}
    body = {"params": model.body.parameters(), "lr": given.lr / 10}
    train(model.train(), training, [head, body], given.steps, "all layers")
    print(f"trained all layers: accuracy {accuracy(model, held_out):.2%}")

    train(
        scratch.train(), training, [{"params": scratch.parameters(), "lr": given.lr}], 2 * given.steps, "from scratch"
    )
    print(f"from scratch, in as many steps: accuracy {accuracy(scratch, held_out):.2%}")
    print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
