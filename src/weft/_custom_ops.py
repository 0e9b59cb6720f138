"""Where old programs import `custom_op` from; `weft.library` has what is used today."""

from weft.library import custom_op as custom_op
