"""Proxies, of which there are none here."""

from weft.fx._absent import Absent


class Proxy(Absent):
    """Would stand for a value while a module is traced. No value is an instance of it."""


class TraceError(ValueError):
    """What a tracer would raise for a program that it cannot trace."""
