"""Traces of remote calls: recording on each worker, and merging of the recordings."""
