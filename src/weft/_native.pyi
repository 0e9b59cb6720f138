"""The extension: kernels for XLA on CPUs, and the machine of the first tier. It is there if a C++ compiler was."""
