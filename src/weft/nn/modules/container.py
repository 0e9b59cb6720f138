"""Modules that hold modules or parameters, under PyTorch's import path."""

from weft.nn._containers import ModuleDict as ModuleDict
from weft.nn._containers import ModuleList as ModuleList
from weft.nn._containers import Sequential as Sequential
from weft.nn._parameter_containers import ParameterDict as ParameterDict
from weft.nn._parameter_containers import ParameterList as ParameterList
