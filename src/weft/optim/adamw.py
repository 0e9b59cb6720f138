"""Adam with decoupled weight decay."""

from weft.optim.adam import AdamW as AdamW
