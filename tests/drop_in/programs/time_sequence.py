"""LSTM cells continue sine waves; LBFGS takes a closure."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from common import fill, report


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm1 = nn.LSTMCell(1, 8)
        self.lstm2 = nn.LSTMCell(8, 8)
        self.linear = nn.Linear(8, 1)

    def forward(self, input, future=0):
        outputs = []
        h_t = torch.zeros(input.size(0), 8, dtype=torch.double)
        c_t = torch.zeros(input.size(0), 8, dtype=torch.double)
        h_t2 = torch.zeros(input.size(0), 8, dtype=torch.double)
        c_t2 = torch.zeros(input.size(0), 8, dtype=torch.double)
        for input_t in input.split(1, dim=1):
            h_t, c_t = self.lstm1(input_t, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        for _ in range(future):  # if we should predict the future
            h_t, c_t = self.lstm1(output, (h_t, c_t))
            h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
            output = self.linear(h_t2)
            outputs += [output]
        return torch.cat(outputs, dim=1)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2, help="steps to run")
opt = parser.parse_args()
x = np.arange(12)[None, :] + np.random.default_rng(2).integers(-40, 40, 6)[:, None]
data = np.sin(x / 4.0).astype("float64")
input, target = torch.from_numpy(data[:, :-1]), torch.from_numpy(data[:, 1:])
seq = fill(Sequence().double())
criterion = nn.MSELoss()
optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=4)
losses = []


def closure():
    optimizer.zero_grad()
    loss = criterion(seq(input), target)
    losses.append(loss.item())
    loss.backward()
    return loss


for i in range(opt.steps):
    print("STEP: ", i)
    optimizer.step(closure)
    with torch.no_grad():
        pred = seq(input, future=3)
        print("test loss:", criterion(pred[:, :-3], target).item(), pred.detach().numpy().shape)
report(losses[0], losses[-1])
