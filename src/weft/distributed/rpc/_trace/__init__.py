"""Traces of remote calls: recording on each worker, and putting the recordings together."""
