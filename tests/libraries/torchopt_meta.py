"""torchopt: optimizers of functions and of modules, and a gradient through steps of a differentiable one."""

import torch
import torchopt
from common import fill, show, steps, waves
from torch import nn

inputs, targets = waves(8, 4), waves(8, 2)
net = fill(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)))

adam = torchopt.adam(lr=0.05)
weights = {"w": waves(4, 2).requires_grad_()}
state = adam.init(weights)
for _ in range(3):
    loss = ((inputs @ weights["w"] - targets) ** 2).mean()
    gradients = {"w": torch.autograd.grad(loss, weights["w"])[0]}
    updates, state = adam.update(gradients, state, inplace=False)
    weights = torchopt.apply_updates(weights, updates, inplace=False)
show("functional", weights["w"])

scale = nn.Parameter(torch.tensor(1.0))
outer = torch.optim.SGD([scale], lr=0.1)
inner = torchopt.MetaAdam(net, lr=0.1)
first_net, first_state = torchopt.extract_state_dict(net, by="reference"), torchopt.extract_state_dict(inner)
losses = []
for _ in steps(8):
    for _ in range(2):
        inner.step(nn.functional.mse_loss(scale * net(inputs), targets))
    loss = nn.functional.mse_loss(net(inputs), targets)
    outer.zero_grad()
    loss.backward()
    outer.step()
    losses.append(loss.item())
    torchopt.recover_state_dict(net, first_net)
    torchopt.recover_state_dict(inner, first_state)
show("meta", *losses, scale)

model = fill(nn.Linear(4, 2))
optimizer = torchopt.AdamW(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
show("adamw", loss)
