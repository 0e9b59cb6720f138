"""Agents: processes that start and monitor the workers of a node."""
