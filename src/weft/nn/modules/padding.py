"""Padding, under PyTorch's import path."""

from weft.nn._shape import CircularPad1d as CircularPad1d
from weft.nn._shape import CircularPad2d as CircularPad2d
from weft.nn._shape import CircularPad3d as CircularPad3d
from weft.nn._shape import ConstantPad1d as ConstantPad1d
from weft.nn._shape import ConstantPad2d as ConstantPad2d
from weft.nn._shape import ConstantPad3d as ConstantPad3d
from weft.nn._shape import ReflectionPad1d as ReflectionPad1d
from weft.nn._shape import ReflectionPad2d as ReflectionPad2d
from weft.nn._shape import ReflectionPad3d as ReflectionPad3d
from weft.nn._shape import ReplicationPad1d as ReplicationPad1d
from weft.nn._shape import ReplicationPad2d as ReplicationPad2d
from weft.nn._shape import ReplicationPad3d as ReplicationPad3d
from weft.nn._shape import ZeroPad1d as ZeroPad1d
from weft.nn._shape import ZeroPad2d as ZeroPad2d
from weft.nn._shape import ZeroPad3d as ZeroPad3d
