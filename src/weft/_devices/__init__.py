"""What programs ask of types of devices: the functions behind `weft.cuda`, `weft.accelerator` and their kin."""
