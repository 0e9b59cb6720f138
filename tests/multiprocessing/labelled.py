"""A class of tensors as programs define them, and what sends one: a module of its own, since it loads tensors."""

import weft


class Labelled(weft.Tensor):
    """A class of tensors as programs define them."""


def send_subclass(sender):
    sender.send(weft.arange(3).as_subclass(Labelled))
