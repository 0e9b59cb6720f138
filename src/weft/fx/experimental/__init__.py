"""Rewritings of models that are made of the parts of `fx`."""

from weft._import_paths.finder import serve_below as _serve_below

_serve_below(__name__)
