"""A pole on a cart, in NumPy, for the programs that learn by rewards."""

import numpy as np


class CartPole:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def reset(self):
        self.state = self.random.uniform(-0.05, 0.05, 4)
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, angle, spin = self.state
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
        turn = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        pull = push - 0.05 * turn * np.cos(angle) / 1.1
        self.state = self.state + 0.02 * np.array([v, pull, spin, turn])
        done = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21)
        return self.state.astype(np.float32), 1.0, done

    def choose(self, probs):
        """An action, drawn here so that it does not depend on the library's generator."""
        return int(self.random.choice(len(probs), p=probs / probs.sum()))
