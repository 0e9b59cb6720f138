"""stable-baselines3: PPO on a pole in balance: a policy with given weights, one update of it, saved and loaded; DQN."""

import tempfile

import gymnasium
import numpy as np
import torch
from common import fill, show, steps
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy

env = gymnasium.make("CartPole-v1")
model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=2, device="cpu", seed=0)
fill(model.policy)
states = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
show("actions", model.predict(states, deterministic=True)[0])
values, log_probs, entropy = model.policy.evaluate_actions(torch.as_tensor(states), torch.arange(8) % 2)
show("policy", values, log_probs, entropy)
show("reward", evaluate_policy(model, env, n_eval_episodes=3, warn=False)[0] > 0)

_, callback = model._setup_learn(32, None)
buffer = model.rollout_buffer
buffer.reset()
for step in range(32):
    state, action = states[step % 8][None], torch.tensor([step % 2])
    value, log_prob, _ = model.policy.evaluate_actions(torch.as_tensor(state), action)
    buffer.add(state, action.numpy()[None], np.ones(1), np.array([step == 0]), value.detach(), log_prob.detach())
buffer.compute_returns_and_advantage(torch.zeros(1), np.array([False]))
show("returns", buffer.returns)
for _ in steps(8):
    model.train()
    if model._n_updates == 2:
        show("updated", model.policy.predict_values(torch.as_tensor(states)))
model.learn(64)
show("learned", model.num_timesteps)
with tempfile.TemporaryDirectory() as folder:
    model.save(f"{folder}/ppo")
    again = PPO.load(f"{folder}/ppo", device="cpu")
show(
    "loaded", np.array_equal(again.predict(states, deterministic=True)[0], model.predict(states, deterministic=True)[0])
)
other = DQN("MlpPolicy", env, learning_starts=10, buffer_size=100, device="cpu", seed=0)
other.learn(40)
show("dqn", other.num_timesteps, *other.predict(states, deterministic=True)[0].shape)
