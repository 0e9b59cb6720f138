"""gpytorch: an exact Gaussian process fitted by its marginal likelihood, and predictions."""

import gpytorch
import torch
from common import show, train

x = torch.linspace(0, 1, 20)
y = (x * 6.2).sin() + 0.1 * (x * 40).cos()


class Model(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        kernel = gpytorch.kernels.MaternKernel(nu=2.5) + gpytorch.kernels.RBFKernel()
        self.kernel = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(likelihood)
marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
train(model, lambda: -marginal(model(x), y), torch.optim.Adam)

model.eval()
likelihood.eval()
with torch.no_grad(), gpytorch.settings.fast_pred_var():
    at = torch.linspace(-0.2, 1.2, 9)
    prediction = likelihood(model(at))
    show("mean", prediction.mean)
    show("deviation", prediction.stddev)
    lower, upper = prediction.confidence_region()
    show("region", upper - lower)
point = torch.tensor([0.35], requires_grad=True)
model(point).mean.sum().backward()
show("slope", point.grad)
