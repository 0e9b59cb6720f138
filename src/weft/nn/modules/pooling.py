"""Pooling, under PyTorch's import path."""

from weft.nn._pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from weft.nn._pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from weft.nn._pooling import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from weft.nn._pooling import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from weft.nn._pooling import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from weft.nn._pooling import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from weft.nn._pooling import AvgPool1d as AvgPool1d
from weft.nn._pooling import AvgPool2d as AvgPool2d
from weft.nn._pooling import AvgPool3d as AvgPool3d
from weft.nn._pooling import FractionalMaxPool2d as FractionalMaxPool2d
from weft.nn._pooling import FractionalMaxPool3d as FractionalMaxPool3d
from weft.nn._pooling import LPPool1d as LPPool1d
from weft.nn._pooling import LPPool2d as LPPool2d
from weft.nn._pooling import LPPool3d as LPPool3d
from weft.nn._pooling import MaxPool1d as MaxPool1d
from weft.nn._pooling import MaxPool2d as MaxPool2d
from weft.nn._pooling import MaxPool3d as MaxPool3d
from weft.nn._pooling import MaxUnpool1d as MaxUnpool1d
from weft.nn._pooling import MaxUnpool2d as MaxUnpool2d
from weft.nn._pooling import MaxUnpool3d as MaxUnpool3d
