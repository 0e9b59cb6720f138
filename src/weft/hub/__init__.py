"""Published models and weights: downloads, their cache, and repositories with a `hubconf.py`."""

from weft.hub._download import download_url_to_file as download_url_to_file
from weft.hub._entry import help as help
from weft.hub._entry import list as list
from weft.hub._entry import load as load
from weft.hub._folder import get_dir as get_dir
from weft.hub._folder import set_dir as set_dir
from weft.hub._weights import load_state_dict_from_url as load_state_dict_from_url
