"""Traces of remote calls: what each worker records."""
