"""Agents: the processes that start and watch the workers of a node."""
