"""Rewritings of models that are made of the parts of `fx`."""
