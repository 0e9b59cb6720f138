"""Published models and weights: downloads, their cache, and repositories with a `hubconf.py`."""

from urllib.parse import urlparse as urlparse
from urllib.request import urlopen as urlopen

from weft.hub._bar import tqdm as tqdm
from weft.hub._download import READ_DATA_CHUNK as READ_DATA_CHUNK
from weft.hub._download import download_url_to_file as download_url_to_file
from weft.hub._entry import MODULE_HUBCONF as MODULE_HUBCONF
from weft.hub._entry import VAR_DEPENDENCY as VAR_DEPENDENCY
from weft.hub._entry import help as help
from weft.hub._entry import list as list
from weft.hub._entry import load as load
from weft.hub._folder import DEFAULT_CACHE_DIR as DEFAULT_CACHE_DIR
from weft.hub._folder import ENV_TORCH_HOME as ENV_TORCH_HOME
from weft.hub._folder import ENV_XDG_CACHE_HOME as ENV_XDG_CACHE_HOME
from weft.hub._folder import _get_torch_home as _get_torch_home
from weft.hub._folder import get_dir as get_dir
from weft.hub._folder import set_dir as set_dir
from weft.hub._repository import ENV_GITHUB_TOKEN as ENV_GITHUB_TOKEN
from weft.hub._weights import HASH_REGEX as HASH_REGEX
from weft.hub._weights import load_state_dict_from_url as load_state_dict_from_url
