"""Agents and workers in simulated time, for docs/scale.md."""
