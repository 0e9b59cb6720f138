"""A variational autoencoder."""

import torch
from common import drawn, fill, report
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 40)
        self.fc21 = nn.Linear(40, 8)
        self.fc22 = nn.Linear(40, 8)
        self.fc3 = nn.Linear(8, 40)
        self.fc4 = nn.Linear(40, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar, eps):
        std = torch.exp(0.5 * logvar)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, 64))
        return self.decode(self.reparameterize(mu, logvar, eps)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


model = fill(VAE())
optimizer = optim.Adam(model.parameters(), lr=1e-2)
data = torch.sigmoid(drawn(4, 1, 8, 8).repeat(16, 1, 1, 1) + 0.1 * drawn(64, 1, 8, 8, seed=1))
losses = []
model.train()
for step in range(15):
    optimizer.zero_grad()
    recon_batch, mu, logvar = model(data, drawn(64, 8, seed=step))
    loss = loss_function(recon_batch, data, mu, logvar)
    loss.backward()
    losses.append(loss.item() / len(data))
    optimizer.step()
report(losses[0], losses[-1])
