"""Functions of arrays as operators on tensors, and functions of tensors within jax's transformations."""
