"""gpytorch: a sparse variational classifier, with inducing points."""

import gpytorch
import torch
from common import show, train

x = torch.linspace(0, 1, 24)
y = ((x * 9).sin() > 0).float()


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, points):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points), mean_init_std=0)
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


model = Model(torch.linspace(0, 1, 6))
likelihood = gpytorch.likelihoods.BernoulliLikelihood()
bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
train(model, lambda: -bound(model(x), y), torch.optim.Adam)
model.eval()
with torch.no_grad():
    show("probability", likelihood(model(torch.linspace(0, 1, 7))).mean)
