"""Functional calls of modules."""

from weft.func._modules import functional_call as functional_call
from weft.func._modules import stack_module_state as stack_module_state
