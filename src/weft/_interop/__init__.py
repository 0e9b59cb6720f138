"""Functions of arrays as operators on tensors, and functions of tensors inside of jax's transformations."""
