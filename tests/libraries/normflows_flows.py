"""normflows: couplings, autoregressive splines, their inverses, and training by likelihood."""

import normflows as nf
import torch
from common import fill, show, train, waves

torch.manual_seed(0)
x = waves(6, 2)
flows = []
for _ in range(2):
    flows += [
        nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 8, 2], init_zeros=True)),
        nf.flows.Permute(2, mode="swap"),
        nf.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8, init_identity=False),
        nf.flows.ActNorm(2),
    ]
model = nf.NormalizingFlow(nf.distributions.DiagGaussian(2), flows)
model.log_prob(x)
fill(model)
show("likelihood", model.log_prob(x))
latent, determinant = model.inverse_and_log_det(x)
show("latent", latent, determinant)
back, other = model.forward_and_log_det(latent)
show("back", (back - x).abs().max() < 1e-4, (other + determinant).abs().max() < 1e-4)
train(model, lambda: model.forward_kld(x))
show("samples", *model.sample(3)[0].shape)
