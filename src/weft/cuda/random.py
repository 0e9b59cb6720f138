"""The default generator's seeds and states, as functions of CUDA devices. Draws are the same on every device."""

from weft.cuda._devices import get_rng_state as get_rng_state
from weft.cuda._devices import get_rng_state_all as get_rng_state_all
from weft.cuda._devices import initial_seed as initial_seed
from weft.cuda._devices import manual_seed as manual_seed
from weft.cuda._devices import manual_seed_all as manual_seed_all
from weft.cuda._devices import seed as seed
from weft.cuda._devices import seed_all as seed_all
from weft.cuda._devices import set_rng_state as set_rng_state
from weft.cuda._devices import set_rng_state_all as set_rng_state_all
