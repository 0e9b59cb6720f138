"""A model that learns squares: a script, a module and a console script."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    """Numbers from 0 to 1, and their squares."""

    def __len__(self):
        return 64

    def __getitem__(self, at):
        x = torch.tensor([at / len(self)])
        return x, x**2


def model():
    return nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--context", help="how the workers of the loader are started")
    chosen = options.parse_args()
    torch.manual_seed(0)
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    loader = DataLoader(Squares(), 16, shuffle=True, num_workers=2, multiprocessing_context=chosen.context)
    losses = []
    for _ in range(4):
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0], losses


if __name__ == "__main__":
    main()
