"""The former name of `weft.hub.load_state_dict_from_url`."""

from __future__ import annotations

from weft.hub import load_state_dict_from_url as load_url
from weft.hub import tqdm as tqdm

__all__ = ["load_url"]
