"""Sub-pixel convolutions enlarge pictures."""

from math import log10

import torch
import torch.nn as nn
import torch.nn.init as init
import torch.optim as optim
from common import drawn, fill, report


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 8, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(8, 8, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(8, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self._initialize_weights()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        return self.pixel_shuffle(self.conv3(x))

    def _initialize_weights(self):
        init.orthogonal_(self.conv1.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv2.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv3.weight)


large = drawn(8, 1, 16, 16).cumsum(2).cumsum(3) / 16
small = nn.functional.interpolate(large, scale_factor=0.5, mode="bilinear", align_corners=False)
model = fill(Net(upscale_factor=2))
criterion = nn.MSELoss()
optimizer = optim.Adam(model.parameters(), lr=0.01)
losses = []
for epoch in range(8):
    optimizer.zero_grad()
    loss = criterion(model(small), large)
    losses.append(loss.item())
    loss.backward()
    optimizer.step()
    print(f"===> Epoch {epoch}: PSNR {10 * log10(1 / loss.item()):.4f} dB")
torch.save(model, "model_epoch.pth")
again = torch.load("model_epoch.pth", weights_only=False)
assert criterion(again(small), large).item() == criterion(model(small), large).item()
report(losses[0], losses[-1])
