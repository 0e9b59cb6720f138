"""Two processes, started by a launcher."""

import torch
from accelerate import Accelerator
from squares import Squares, model
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)
net = model()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(Squares(), batch_size=8))
for x, y in loader:
    loss = torch.nn.functional.mse_loss(net(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
assert accelerator.gather(loss.detach().reshape(1)).shape == (2,)
accelerator.end_training()
