"""botorch: a Gaussian process fitted, analytic and sampled acquisition with gradients, and the best point."""

import warnings

import torch
from botorch import fit_gpytorch_mll
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound, qExpectedImprovement
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.optim import optimize_acqf
from botorch.sampling.base import MCSampler
from common import show
from gpytorch.mlls import ExactMarginalLogLikelihood

warnings.simplefilter("ignore")
x = (torch.arange(20, dtype=torch.float64).reshape(10, 2) * 2.39996).frac()
y = (x * 5).sin().sum(-1, keepdim=True) - (x[:, :1] - 0.4) ** 2
model = SingleTaskGP(x, y, outcome_transform=Standardize(1))
fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
at = torch.tensor([[0.3, 0.6], [0.9, 0.1]], dtype=torch.float64, requires_grad=True)
posterior = model.posterior(at)
show("posterior", posterior.mean, posterior.variance)


class Fixed(MCSampler):
    """Draws that do not depend on random numbers."""

    def forward(self, posterior):
        self.base_samples = (torch.arange(8 * 2, dtype=torch.float64) * 1.7).sin().reshape(8, 1, 2, 1)
        return posterior.rsample_from_base_samples(torch.Size([8]), self.base_samples.squeeze(1))


improvement = LogExpectedImprovement(model, best_f=y.max())
bound = UpperConfidenceBound(model, beta=0.5)
sampled = qExpectedImprovement(model, best_f=0.5, sampler=Fixed(torch.Size([8])))
for name, value in (("lei", improvement(at[:, None])), ("ucb", bound(at[:, None])), ("qei", sampled(at[None]))):
    show(name, value, torch.autograd.grad(value.sum(), at)[0])
box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
start = torch.tensor([[[0.25, 0.3]], [[0.8, 0.7]]], dtype=torch.float64)
point, value = optimize_acqf(bound, box, q=1, num_restarts=2, batch_initial_conditions=start)
show("best", point, value)
