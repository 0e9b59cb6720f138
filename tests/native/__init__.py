"""The CPU kernels of `native/`, each against its formula in float64; skipped where they are not built."""
