"""fvcore: operations, activations and parameters of a model, counted in its trace; its layers and losses."""

import logging

import torch
from common import fill, show, waves
from fvcore.nn import (
    ActivationCountAnalysis,
    FlopCountAnalysis,
    giou_loss,
    parameter_count,
    sigmoid_focal_loss,
    smooth_l1_loss,
)
from torch import nn

logging.getLogger("fvcore").setLevel(logging.ERROR)
model = fill(
    nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
).eval()
flops = FlopCountAnalysis(model, waves(1, 3, 8, 8))
show("flops", flops.total(), *sorted(flops.by_operator().values()), *sorted(flops.by_module().values()))
show("activations", ActivationCountAnalysis(model, waves(1, 3, 8, 8)).total())
show("parameters", *parameter_count(model).values())
x = waves(6, 4).requires_grad_()
loss = sigmoid_focal_loss(x, (x > 0).float(), 0.25, reduction="mean") + smooth_l1_loss(x, x.detach() * 2, 0.5, "sum")
boxes = torch.cat([x[:, :2].abs(), x[:, :2].abs() + 1], 1)
(loss + giou_loss(boxes, boxes.detach() + 0.2, "mean")).backward()
show("losses", loss, x.grad)
