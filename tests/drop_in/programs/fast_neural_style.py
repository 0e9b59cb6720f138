"""A network that paints pictures in a style, trained by the features of another network."""

from collections import namedtuple

import torch
from common import drawn, fill, report
from torch.optim import Adam


class ConvLayer(torch.nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride):
        super().__init__()
        self.reflection_pad = torch.nn.ReflectionPad2d(kernel_size // 2)
        self.conv2d = torch.nn.Conv2d(in_channels, out_channels, kernel_size, stride)

    def forward(self, x):
        return self.conv2d(self.reflection_pad(x))


class ResidualBlock(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = ConvLayer(channels, channels, kernel_size=3, stride=1)
        self.in1 = torch.nn.InstanceNorm2d(channels, affine=True)
        self.relu = torch.nn.ReLU()

    def forward(self, x):
        return self.relu(self.in1(self.conv1(x))) + x


class UpsampleConvLayer(ConvLayer):
    def forward(self, x):
        return super().forward(torch.nn.functional.interpolate(x, mode="nearest", scale_factor=2))


class TransformerNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = ConvLayer(3, 4, kernel_size=5, stride=1)
        self.in1 = torch.nn.InstanceNorm2d(4, affine=True)
        self.conv2 = ConvLayer(4, 8, kernel_size=3, stride=2)
        self.res1 = ResidualBlock(8)
        self.deconv1 = UpsampleConvLayer(8, 4, kernel_size=3, stride=1)
        self.deconv2 = ConvLayer(4, 3, kernel_size=5, stride=1)
        self.relu = torch.nn.ReLU()

    def forward(self, x):
        y = self.relu(self.in1(self.conv1(x)))
        y = self.res1(self.relu(self.conv2(y)))
        return self.deconv2(self.relu(self.deconv1(y)))


class Features(torch.nn.Module):
    def __init__(self, requires_grad=False):
        super().__init__()
        self.slice1 = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3, padding=1), torch.nn.ReLU())
        self.slice2 = torch.nn.Sequential(torch.nn.MaxPool2d(2), torch.nn.Conv2d(6, 8, 3, padding=1), torch.nn.ReLU())
        if not requires_grad:
            for param in self.parameters():
                param.requires_grad = False

    def forward(self, X):
        h1 = self.slice1(X)
        return namedtuple("Outputs", ["relu1_2", "relu2_2"])(h1, self.slice2(h1))


def gram_matrix(y):
    (b, ch, h, w) = y.size()
    features = y.view(b, ch, w * h)
    return features.bmm(features.transpose(1, 2)) / (ch * h * w)


def normalize_batch(batch):
    mean = batch.new_tensor([0.485, 0.456, 0.406]).view(-1, 1, 1)
    std = batch.new_tensor([0.229, 0.224, 0.225]).view(-1, 1, 1)
    return (batch.div_(255.0) - mean) / std


transformer, vgg = fill(TransformerNet()), fill(Features(), 1)
optimizer = Adam(transformer.parameters(), 1e-2)
mse_loss = torch.nn.MSELoss()
style = (drawn(1, 3, 16, 16) * 50 + 128).repeat(2, 1, 1, 1)
gram_style = [gram_matrix(y) for y in vgg(normalize_batch(style))]
losses = []
for step in range(3):
    optimizer.zero_grad()
    x = drawn(2, 3, 16, 16, seed=7) * 50 + 128
    y = normalize_batch(transformer(x) + 128)
    x = normalize_batch(x)
    features_y, features_x = vgg(y), vgg(x)
    content_loss = mse_loss(features_y.relu2_2, features_x.relu2_2)
    style_loss = 0.0
    for ft_y, gm_s in zip(features_y, gram_style):
        style_loss += mse_loss(gram_matrix(ft_y), gm_s[: len(x), :, :])
    total_loss = content_loss + 10 * style_loss
    total_loss.backward()
    optimizer.step()
    losses.append(total_loss.item())
report(losses[0], losses[-1])
