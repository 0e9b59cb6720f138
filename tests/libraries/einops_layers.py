"""einops: its functions and layers, with gradients."""

import torch
from common import fill, show, train, waves
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import nn

x = waves(2, 4, 6, 3).requires_grad_()
y = rearrange(x, "b (h p) (w q) c -> b (h w) (p q c)", p=2, q=2)
show("reduce", reduce(y, "b n d -> b d", "max"))
show("repeat", repeat(y[:, 0], "b d -> (n b) d", n=2).sum())
show("einsum", einsum(y, y, "b i d, b j d -> b i j"))
packed, shapes = pack([y, y[:, 0]], "b * d")
show("pack", packed.shape, unpack(packed, shapes, "b * d")[1])
reduce(y * y, "b n d -> ", "mean").backward()
show("gradient", x.grad.norm())
model = fill(
    nn.Sequential(
        Rearrange("b (h p) (w q) c -> b (h w) (p q c)", p=2, q=2),
        EinMix("b n d -> b n e", weight_shape="d e", bias_shape="e", d=12, e=8),
        nn.GELU(),
        Reduce("b n e -> b e", "mean"),
        nn.Linear(8, 3),
    )
)
data, labels = waves(2, 4, 6, 3), torch.tensor([0, 2])
train(model, lambda: nn.functional.cross_entropy(model(data), labels))
