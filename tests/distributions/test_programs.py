"""Programs that PyTorch's documentation and its users write with distributions."""

from __future__ import annotations

import weft as torch
from weft import nn
from weft.distributions import Categorical, Normal, kl_divergence
from weft.distributions.categorical import Categorical as SameCategorical
from weft.distributions.kl import kl_divergence as same_kl_divergence


def test_pytorchs_paths():
    assert SameCategorical is Categorical
    assert same_kl_divergence is kl_divergence


def test_reinforce():
    """The score function: a policy learns which of three actions is rewarded."""
    policy = nn.Linear(2, 3)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.1)
    state = torch.tensor([[1.0, 0.5]]).expand(16, 2)
    for _ in range(40):
        m = Categorical(logits=policy(state))
        action = m.sample()
        reward = (action == 2).float()
        loss = (-m.log_prob(action) * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert Categorical(logits=policy(state)).probs[0, 2] > 0.8


def test_pathwise_derivative():
    """Draws with gradients: a normal distribution moves to where the reward is."""
    params = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([params], lr=0.05)
    for _ in range(40):
        m = Normal(params[0], params[1].exp())
        reward = -((m.rsample((16,)) - 3) ** 2).mean()
        optimizer.zero_grad()
        (-reward).backward()
        optimizer.step()
    assert abs(params[0].item() - 3) < 0.5
    assert params[1] < -0.5


def test_variational_autoencoder():
    encoder, decoder = nn.Linear(4, 4), nn.Linear(2, 4)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.03)
    x = torch.randn(32, 2) @ torch.randn(2, 4)
    bounds = []
    for _ in range(40):
        loc, log_scale = encoder(x).chunk(2, -1)
        posterior = Normal(loc, log_scale.exp())
        likelihood = Normal(decoder(posterior.rsample()), 0.5)
        divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum(-1)
        loss = (divergence - likelihood.log_prob(x).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bounds.append(loss.item())
    assert bounds[-1] < 0.7 * bounds[0]
