"""Kernels of our own for the CPU: a file per family has its calls as functions of arrays, and the rows' bodies by them.

A body serves a call where it was measured to win in whole steps. Sums do not depend on the number of threads.
"""
