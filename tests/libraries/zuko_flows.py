"""zuko: normalizing flows of several kinds, their densities and inverses, and training."""

import zuko
from common import fill, show, train, waves
from torch import nn

x, context = waves(16, 3), waves(16, 2)
flows = nn.ModuleDict(
    {
        "maf": zuko.flows.MAF(3, 2, transforms=2, hidden_features=(16,)),
        "nsf": zuko.flows.NSF(3, 2, transforms=2, hidden_features=(16,)),
        "nice": zuko.flows.NICE(3, 2, transforms=2, hidden_features=(16,)),
        "naf": zuko.flows.NAF(3, 2, transforms=1, hidden_features=(16,)),
        "gmm": zuko.flows.GMM(3, 2, components=3, hidden_features=(16,)),
    }
)
fill(flows)
for name, flow in flows.items():
    show(name, flow(context).log_prob(x))
for name in ("maf", "nsf", "nice"):
    transform = flows[name](context).transform
    show(f"{name}_inverse", transform.inv(transform(x)) - x)
train(flows, lambda: sum(-flow(context).log_prob(x).mean() for flow in flows.values()))
