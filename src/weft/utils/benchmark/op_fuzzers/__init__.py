"""Random inputs for operators with one tensor (`unary`) and with two that broadcast (`binary`)."""
