"""einx: operations in its notation, with gradients."""

import einx
import torch
from common import show, waves

x = waves(2, 6, 4).requires_grad_()
w = waves(4, 3)
show("rearrange", einx.id("b (h s) c -> b s (h c)", x, h=2))
show("mean", einx.mean("b [s] c", x), einx.sum("b (s [p]) c", x, p=2))
show("dot", einx.dot("b s [c], [c] d -> b s d", x, w))
show("add", einx.add("b s c, c", x, w[:, 0]), einx.multiply("s, b s c", waves(6), x))
show("softmax", einx.softmax("b [s] c", x))
show("flip", einx.flip("b [s] c", x), einx.roll("b [s] c", x, shift=2))
show("index", einx.get_at("b [s] c, b -> b c", x, torch.tensor([1, 4])))
show("where", einx.where("b s c, , b s c", x > 0, torch.tensor(0.0), x))
einx.dot("b s c, b s c -> ", x, einx.logsumexp("b [s] c", x, keepdims=True).expand(2, 6, 4)).backward()
show("gradient", x.grad)
