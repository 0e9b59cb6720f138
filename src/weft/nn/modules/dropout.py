"""Dropout, under PyTorch's import path."""

from weft.nn._dropout import AlphaDropout as AlphaDropout
from weft.nn._dropout import Dropout as Dropout
from weft.nn._dropout import Dropout1d as Dropout1d
from weft.nn._dropout import Dropout2d as Dropout2d
from weft.nn._dropout import Dropout3d as Dropout3d
from weft.nn._dropout import FeatureAlphaDropout as FeatureAlphaDropout
