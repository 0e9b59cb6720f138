"""Two copies of one network tell whether two pictures show the same."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from common import drawn, fill, report
from torch.utils.data import DataLoader, Dataset


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((4, 4)), nn.Flatten(start_dim=1)
        )
        self.fc = nn.Sequential(nn.Linear(64 * 2, 16), nn.ReLU(inplace=True), nn.Linear(16, 1))
        self.sigmoid = nn.Sigmoid()
        self.fc.apply(self.init_weights)

    def init_weights(self, m):
        if isinstance(m, nn.Linear):
            torch.nn.init.xavier_uniform_(m.weight)
            m.bias.data.fill_(0.01)

    def forward_once(self, x):
        return self.cnn(x)

    def forward(self, input1, input2):
        output = torch.cat((self.forward_once(input1), self.forward_once(input2)), 1)
        return self.sigmoid(self.fc(output))


class Pairs(Dataset):
    def __init__(self):
        self.kinds = drawn(4, 1, 10, 10)
        self.noise = drawn(64, 2, 1, 10, 10, seed=1)

    def __len__(self):
        return len(self.noise)

    def __getitem__(self, index):
        same = index % 2
        a, b = index % 4, (index + 1 - same) % 4
        first = self.kinds[a] + 0.1 * self.noise[index, 0]
        second = self.kinds[b] + 0.1 * self.noise[index, 1]
        return first, second, torch.tensor(same, dtype=torch.float)


model = fill(SiameseNetwork())
optimizer = optim.Adadelta(model.parameters(), lr=1.0)
criterion = nn.BCELoss()
losses = []
for _epoch in range(4):
    for images_1, images_2, targets in DataLoader(Pairs(), batch_size=32):
        optimizer.zero_grad()
        outputs = model(images_1, images_2).squeeze()
        loss = criterion(outputs, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
with torch.no_grad():
    a, b, _ = Pairs()[3]
    print("distance", F.pairwise_distance(model.forward_once(a[None]), model.forward_once(b[None])).item())
report(losses[0], losses[-1])
