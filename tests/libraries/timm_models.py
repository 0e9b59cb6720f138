"""timm: a small model of each of several families, forward and backward."""

import timm
import torch
from common import fill, show, waves
from torch import nn

MODELS = {
    "resnet10t": 32,
    "efficientnet_lite0": 32,
    "mobilenetv3_small_050": 32,
    "regnetx_002": 32,
    "convnext_atto": 32,
    "vit_tiny_patch16_224": 32,
    "densenet121": 32,
}
for name, size in MODELS.items():
    options = {"img_size": size} if name.startswith("vit") else {}
    model = fill(timm.create_model(name, num_classes=5, **options)).eval()
    out = model(waves(2, 3, size, size))
    nn.functional.cross_entropy(out, torch.tensor([1, 3])).backward()
    norms = [parameter.grad.norm() for parameter in model.parameters() if parameter.grad is not None]
    show(name, out, torch.stack(norms).norm())
