"""Reinforcement learning: an agent learns to balance a pole on a cart, with the help of several observers.

    python examples/rpc/reinforcement.py
    python examples/rpc/reinforcement.py --batch
    python examples/rpc/reinforcement.py --help

Each observer simulates its own cart, and asks the agent for every action: push left or right. With `--batch` the agent
waits until all observers have asked (`rpc.functions.async_execution`), and computes their actions together. After each
round it improves its policy by REINFORCE (Williams, 1992). On two cores it printed

    round 1: the pole stands for 24 steps on average
    round 20: the pole stands for 100 steps on average
    944 actions/s

and 1,484 actions/s with `--batch`.
"""

from __future__ import annotations

import argparse
import threading
import time

import numpy as np

import weft as torch
from _workers import parser, run
from weft import nn
from weft.distributed import rpc
from weft.futures import Future
from weft.nn import functional as F

DISCOUNT = 0.98


def options() -> argparse.Namespace:
    """The parsed command line."""
    made = parser("Balance a pole.")
    made.add_argument("--observers", type=int, default=2, help="workers that have a cart")
    made.add_argument("--rounds", type=int, default=20, help="updates of the policy")
    made.add_argument("--steps", type=int, default=250, help="steps of each observer in a round")
    made.add_argument("--hidden", type=int, default=64, help="width of the policy's hidden layer")
    made.add_argument("--lr", type=float, default=1e-2, help="learning rate of Adam")
    made.add_argument("--batch", action="store_true", help="choose the actions of all observers together")
    return made.parse_args()


class CartPole:
    """A cart of 1 kg that carries a pole of 0.1 kg and 1 m (Barto, Sutton and Anderson, 1983).

    A state is `float32[4]`: the cart's position in m and its speed, the pole's angle in radians and its speed.
    """

    GRAVITY, MASS, POLE_MASS, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.1, 0.1, 0.5, 10.0, 0.02

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        """Put the cart near the middle; returns its state."""
        self._state = self._random.uniform(-0.05, 0.05, 4)
        return self._state.astype(np.float32)

    def step(self, action: int) -> tuple[np.ndarray, bool]:
        """Push the cart to the left (0) or right (1); returns its state, and whether the pole has fallen."""
        _, speed, angle, turning = self._state
        sine, cosine = np.sin(angle), np.cos(angle)
        push = (2 * action - 1) * self.FORCE + self.POLE_MASS * self.HALF_LENGTH * turning**2 * sine
        inertia = self.HALF_LENGTH * (4 / 3 - self.POLE_MASS * cosine**2 / self.MASS)
        bend = (self.GRAVITY * sine - cosine * push / self.MASS) / inertia
        pull = (push - self.POLE_MASS * self.HALF_LENGTH * bend * cosine) / self.MASS
        self._state = self._state + self.SECONDS * np.array([speed, pull, turning, bend])
        place, _, angle, _ = self._state
        return self._state.astype(np.float32), bool(abs(place) > 2.4 or abs(angle) > np.radians(12))


class Observer:
    """A worker with a cart, on which it tries the agent's policy."""

    def __init__(self, number: int, seed: int) -> None:
        self.number = number
        self.cart = CartPole(seed)

    def round(self, agent: rpc.RRef[Agent], steps: int, batch: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Take the agent's actions; returns states, actions, and whether each was the last before a fall."""
        state = self.cart.reset()
        states, actions, falls = [], [], []
        for _ in range(steps):
            ask = agent.rpc_sync().choose_together if batch else agent.rpc_sync().choose
            action = ask(self.number, state)
            states.append(state)
            actions.append(action)
            state, fallen = self.cart.step(action)
            falls.append(fallen)
            if fallen:
                state = self.cart.reset()
        return np.stack(states), np.array(actions), np.array(falls)


class Agent:
    """The policy, which observers ask for actions."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.policy = nn.Sequential(nn.Linear(4, given.hidden), nn.ReLU(), nn.Linear(given.hidden, 2))
        self.optimizer = torch.optim.Adam(self.policy.parameters(), given.lr)
        self.lock = threading.Lock()
        self.asking = np.zeros((given.observers, 4), np.float32)
        self.asked = 0
        self.answer: Future[list[int]] = Future()

    def actions(self, states: np.ndarray) -> list[int]:
        """An action for each state, drawn from the policy."""
        with torch.no_grad():
            likely = F.softmax(self.policy(torch.from_numpy(states)), dim=-1)
            return torch.multinomial(likely, 1).flatten().tolist()

    def choose(self, observer: int, state: np.ndarray) -> int:
        """An action for one observer."""
        del observer
        (action,) = self.actions(state[None])
        return action

    @rpc.functions.async_execution
    def choose_together(self, observer: int, state: np.ndarray) -> Future[int]:
        """An action for one observer, computed when all observers have asked."""
        with self.lock:
            mine = self.answer.then(lambda actions: actions.wait()[observer])
            self.asking[observer] = state
            self.asked += 1
            if self.asked < len(self.asking):
                return mine
            states, answer = self.asking.copy(), self.answer
            self.asked, self.answer = 0, Future()
        answer.set_result(self.actions(states))
        return mine

    def learn(self, states: np.ndarray, actions: np.ndarray, falls: np.ndarray) -> None:
        """Make actions more likely after which the pole stood for long; all arrays are `[observers, steps, …]`."""
        gains = torch.from_numpy(returns(falls))
        gains = (gains - gains.mean()) / (gains.std() + 1e-6)
        likely = F.log_softmax(self.policy(torch.from_numpy(states)), dim=-1)
        chosen = likely.gather(-1, torch.from_numpy(actions)[..., None])[..., 0]
        loss = -(chosen * gains).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def returns(falls: np.ndarray) -> np.ndarray:
    """The return of each step of each observer: the discounted sum of rewards, 1 for each step until the pole falls."""
    found = np.zeros(falls.shape, np.float32)
    ahead = np.zeros(len(falls), np.float32)
    for at in reversed(range(falls.shape[1])):
        ahead = 1 + DISCOUNT * ahead * ~falls[:, at]
        found[:, at] = ahead
    return found


def work(name: str, given: argparse.Namespace) -> None:
    """The agent has observers try its policy, and learns from the results; the observers only serve calls."""
    if name != "agent":
        return
    agent = Agent(given)
    reference = rpc.RRef(agent)
    observers = [
        rpc.remote(f"observer{number}", Observer, (number, given.seed + number)) for number in range(given.observers)
    ]
    seconds = 0.0
    for number in range(1, given.rounds + 1):
        start = time.perf_counter()
        calls = [one.rpc_async(timeout=0).round(reference, given.steps, given.batch) for one in observers]
        states, actions, falls = (np.stack(parts) for parts in zip(*torch.futures.wait_all(calls), strict=True))
        seconds += time.perf_counter() - start
        agent.learn(states, actions, falls)
        if number == 1 or number % max(1, given.rounds // 5) == 0:
            print(f"round {number}: the pole stands for {falls.size / max(1, falls.sum()):.0f} steps on average")
    print(f"{given.rounds * given.steps * given.observers / seconds:,.0f} actions/s")


def main() -> None:
    """Start the workers."""
    given = options()
    run(["agent", *(f"observer{number}" for number in range(given.observers))], work, given)


if __name__ == "__main__":
    main()
