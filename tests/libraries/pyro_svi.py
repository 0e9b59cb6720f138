"""pyro: variational inference of a regression and of a mixture with plates, by fixed draws."""

import pyro
import pyro.distributions as dist
import torch
from common import show, steps, waves
from pyro import poutine
from pyro.infer import SVI, Predictive, Trace_ELBO, TraceEnum_ELBO, config_enumerate
from pyro.infer.autoguide import AutoDelta
from pyro.optim import Adam
from torch.distributions import constraints

x = waves(20, 2)
y = x @ torch.tensor([1.5, -0.5]) + 0.3


def model(x, y=None):
    weight = pyro.sample("weight", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    bias = pyro.sample("bias", dist.Normal(0.0, 1.0))
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(x @ weight + bias, 0.5), obs=y)


class Fixed(dist.Normal):
    """Draws that do not depend on random numbers."""

    def rsample(self, sample_shape=()):
        shape = self._extended_shape(torch.Size(sample_shape))
        return self.loc + self.scale * (torch.arange(shape.numel()) * 1.7 + 0.4).sin().reshape(shape)


def guide(x, y=None):
    mean = pyro.param("mean", torch.zeros(2))
    scale = pyro.param("scale", torch.full((2,), 0.3), constraint=constraints.positive)
    pyro.sample("weight", Fixed(mean, scale).to_event(1))
    pyro.sample("bias", Fixed(pyro.param("at", torch.tensor(0.0)), 0.1))


svi, losses = SVI(model, guide, Adam({"lr": 0.05}), Trace_ELBO()), []
for _ in steps():
    losses.append(svi.step(x, y))
show("losses", losses)
show("parameters", *(pyro.param(name) for name in ("mean", "scale", "at")))
trace = poutine.trace(poutine.condition(model, {"weight": torch.ones(2), "bias": torch.tensor(0.1)})).get_trace(x, y)
show("density", trace.log_prob_sum())
draws = Predictive(model, {"weight": waves(4, 2), "bias": waves(4)}, return_sites=["bias", "weight"])(x, y)
show("draws", draws["weight"])


@config_enumerate
def mixture(data):
    weights = pyro.sample("weights", dist.Dirichlet(torch.full((2,), 2.0)))
    places = pyro.sample("places", dist.Normal(torch.tensor([-1.0, 1.0]), 2.0).to_event(1))
    with pyro.plate("points", len(data)):
        group = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("seen", dist.Normal(places[group], 0.4), obs=data)


start = {"weights": torch.tensor([0.6, 0.4]), "places": torch.tensor([-0.5, 0.8])}
found = AutoDelta(poutine.block(mixture, hide=["group"]), init_loc_fn=lambda site: start[site["name"]])
svi = SVI(mixture, found, Adam({"lr": 0.05}), TraceEnum_ELBO(max_plate_nesting=1))
show("mixture", [svi.step(waves(16)) for _ in range(4)], found.median()["weights"], found.median()["places"])
