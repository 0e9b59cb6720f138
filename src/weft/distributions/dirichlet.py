"""`Dirichlet`, under PyTorch's import path."""

from weft.distributions._dirichlet import Dirichlet as Dirichlet
