"""torchrl: returns, generalized advantages, the losses of PPO and DQN, a replay buffer."""

import torch
from common import fill, show, train, waves
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.modules import ProbabilisticActor, QValueActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss, DQNLoss
from torchrl.objectives.value import GAE
from torchrl.objectives.value.functional import td_lambda_return_estimate

reward, value, following = waves(2, 5, 1), waves(2, 5, 1) * 0.5, waves(2, 5, 1) * 0.3
done = torch.zeros(2, 5, 1, dtype=torch.bool)
show("lambda", td_lambda_return_estimate(0.9, 0.8, following, reward, done))
actor = ProbabilisticActor(
    TensorDictModule(
        nn.Sequential(fill(nn.Linear(3, 4)), NormalParamExtractor()), in_keys=["observation"], out_keys=["loc", "scale"]
    ),
    in_keys=["loc", "scale"],
    distribution_class=TanhNormal,
    return_log_prob=True,
)
critic = ValueOperator(fill(nn.Linear(3, 1)), in_keys=["observation"])
data = TensorDict(
    {
        "observation": waves(2, 5, 3),
        "action": waves(2, 5, 2) * 0.5,
        "action_log_prob": waves(2, 5) * 0.1,
        "next": {"observation": waves(2, 5, 3) + 0.1, "reward": reward, "done": done, "terminated": done},
    },
    [2, 5],
)
GAE(gamma=0.9, lmbda=0.8, value_network=critic)(data)
show("gae", data["advantage"], data["value_target"])
loss = ClipPPOLoss(actor, critic, entropy_bonus=False)
out = loss(data)
show("ppo", out["loss_objective"], out["loss_critic"], out["ESS"])
train(loss, lambda: sum(value for name, value in loss(data).items() if name.startswith("loss_")))

q_net = QValueActor(fill(nn.Linear(3, 4)), in_keys=["observation"], action_space="one-hot")
batch = data.reshape(-1).select("observation", "next")
batch["action"] = nn.functional.one_hot(torch.arange(10) % 4, 4)
dqn = DQNLoss(q_net, action_space="one-hot")
dqn.make_value_estimator(gamma=0.9)
show("dqn", dqn(batch)["loss"])
buffer = ReplayBuffer(storage=LazyTensorStorage(20), batch_size=4)
buffer.extend(batch)
show("buffer", len(buffer), buffer[:]["observation"].sum(), *buffer.sample()["observation"].shape)
