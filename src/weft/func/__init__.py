"""Transforms of functions, and functional calls of modules."""

from weft.func._gradients import debug_unwrap as debug_unwrap
from weft.func._gradients import functionalize as functionalize
from weft.func._gradients import grad as grad
from weft.func._gradients import grad_and_value as grad_and_value
from weft.func._gradients import jvp as jvp
from weft.func._gradients import linearize as linearize
from weft.func._gradients import vjp as vjp
from weft.func._jacobians import hessian as hessian
from weft.func._jacobians import jacfwd as jacfwd
from weft.func._jacobians import jacrev as jacrev
from weft.func._modules import functional_call as functional_call
from weft.func._modules import replace_all_batch_norm_modules_ as replace_all_batch_norm_modules_
from weft.func._modules import stack_module_state as stack_module_state
from weft.func._vmap import vmap as vmap
