"""speechbrain: features, a recognizer of convolutions and recurrences, losses, a search for the best words."""

import torch
from common import fill, show, train, waves
