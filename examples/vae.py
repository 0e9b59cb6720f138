"""A variational autoencoder (Kingma and Welling, 2014) of handwritten digits.

    python examples/vae.py
    python examples/vae.py --png digits.png   # plots new digits, and interpolations between digits
    python examples/vae.py --help

Shows the reparametrisation of a normal distribution, so that gradients flow through random draws; the evidence lower
bound (ELBO) with its Kullback-Leibler term in closed form; and interpolation in the latent space.
A full run takes 13 s of processor time, compilation included. It printed two rows of digits and

    epoch 6: ELBO -25.82, held out -25.78 with a divergence of 1.98
    epoch 60: ELBO -23.82, held out -24.06 with a divergence of 3.62
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
from weft.utils.data import DataLoader, random_split

SHADES = " .:-=+*#%@"


def options() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(
        description="Train a variational autoencoder of digits.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=60, help="passes over the training images")
    parser.add_argument("--batch", type=int, default=64, help="images in a step")
    parser.add_argument("--hidden", type=int, default=256, help="width of the hidden layers")
    parser.add_argument("--latent", type=int, default=8, help="dimensions of the latent space")
    parser.add_argument("--lr", type=float, default=2e-3, help="learning rate")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights, the split and all draws")
    parser.add_argument("--png", type=Path, help="draw samples and an interpolation into this file; needs matplotlib")
    return parser.parse_args()


class VAE(nn.Module):
    """Normal latent variables; each pixel is a Bernoulli variable whose probability is the pixel's brightness."""

    def __init__(self, hidden: int, latent: int) -> None:
        super().__init__()
        self.latent = latent
        self.encoder = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, 2 * latent),
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, 64),
            nn.Unflatten(1, (1, 8, 8)),
        )

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits of pixels for one draw of the latent variables; their mean and log variance."""
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        z = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        return self.decoder(z), mean, log_variance

    def sample(self, count: int) -> torch.Tensor:
        """New images, `float32[count, 1, 8, 8]`."""
        return self.decoder(torch.randn(count, self.latent)).sigmoid()

    def between(self, first: torch.Tensor, last: torch.Tensor, steps: int) -> torch.Tensor:
        """Images between two images, along a line in the latent space."""
        ends = self.encoder(torch.stack([first, last])).chunk(2, dim=1)[0]
        return self.decoder(torch.lerp(ends[:1], ends[1:], torch.linspace(0, 1, steps).unsqueeze(1))).sigmoid()


def elbo(model: VAE, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The bound in nats per image, and the divergence of the latent variables from the prior that is part of it."""
    logits, mean, log_variance = model(images)
    likelihood = -F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
    divergence = 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum()
    return (likelihood - divergence) / len(images), divergence / len(images)


def train(model: VAE, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    """One pass over the training images; returns the mean ELBO."""
    found = []
    for images, _ in loader:
        bound, _ = elbo(model, images)
        optimizer.zero_grad()
        (-bound).backward()
        optimizer.step()
        found.append(bound.detach())
    return torch.stack(found).mean().item()


def drawn(images: torch.Tensor) -> str:
    """Images side by side as text."""
    lines = torch.cat(images.squeeze(1).unbind(), dim=1)
    return "\n".join("".join(SHADES[round(shade * 9)] * 2 for shade in line) for line in lines.tolist())


def write_png(rows: list[torch.Tensor], file: Path) -> None:
    """Rows of images as one picture."""
    from matplotlib.image import imsave

    grid = torch.cat([torch.cat(row.squeeze(1).unbind(), dim=1) for row in rows])
    imsave(file, grid.repeat_interleave(8, 0).repeat_interleave(8, 1).numpy(), cmap="gray", vmin=0, vmax=1)


def main() -> None:
    """Train, evaluate, and show new and interpolated images."""
    given = options()
    torch.manual_seed(given.seed)
    data = Digits()
    training, held_out = random_split(data, [0.8, 0.2])
    loader = DataLoader(training, given.batch, shuffle=True, drop_last=True)
    unseen, _ = next(iter(DataLoader(held_out, len(held_out))))
    model = VAE(given.hidden, given.latent)
    optimizer = torch.optim.Adam(model.parameters(), given.lr)

    start = time.perf_counter()
    for epoch in progress(range(1, given.epochs + 1), "epochs"):
        mean = train(model, loader, optimizer)
        if epoch % max(1, given.epochs // 10) == 0:
            with torch.no_grad():
                bound, divergence = elbo(model, unseen)
            print(f"epoch {epoch}: ELBO {mean:.2f}, held out {bound:.2f} with a divergence of {divergence:.2f}")
    print(f"trained for {time.perf_counter() - start:.1f} s")

    zero, one = (torch.from_numpy(data.images[data.labels == digit][0]) for digit in (0, 1))
    with torch.no_grad():
        samples, way = model.sample(40), model.between(zero, one, 8)
    print(f"\nNew digits:\n{drawn(samples[:8])}\n\nFrom 0 to 1:\n{drawn(way)}")
    if given.png:
        write_png([*samples.split(8), way], given.png)
        print(f"\n{given.png} shows {len(samples)} new digits, and the way from 0 to 1 below")


if __name__ == "__main__":
    main()
