"""The XLA device interface: programs written for the lazy XLA device run after changing their imports."""
