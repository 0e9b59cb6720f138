"""`python -m weft.utils.bottleneck script.py [args]`: what a program is bound by."""
