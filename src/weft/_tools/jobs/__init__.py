"""Manifests of jobs, for what starts them on a cluster."""
