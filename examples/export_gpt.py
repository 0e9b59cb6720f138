"""Export a training step of a small GPT: forward and backward pass and the optimizer's update, as one program.

`run_exported.py` runs the file, in a process without weft.
"""

from __future__ import annotations

import argparse

import numpy as np

import weft as torch
from _gpt.model import GPT
from weft.export import Dim, export, save
from weft.nn import functional as F


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--steps", type=int, default=20, help="train here, too, with the same data")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = GPT(vocabulary=17, width=32, layers=2, heads=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def step(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss

    example = torch.zeros(4, 8, dtype=torch.int64)
    sizes = {0: Dim("batch", min=2, max=1024), 1: Dim("time", min=2, max=1024)}
    program = export(
        step,
        (example, example),
        state={"model": model, "optimizer": optimizer},
        dynamic_shapes={"tokens": sizes, "targets": sizes},
        platforms=("cpu", "cuda", "tpu"),
    )
    print(program)
    save(program, options.file)

    draw = np.random.default_rng(0)
    for number in range(options.steps):
        tokens = torch.tensor(draw.integers(0, 8, (4, 1)) + np.arange(9))
        loss = step(tokens[:, :-1], tokens[:, 1:])
        print(f"step {number}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
