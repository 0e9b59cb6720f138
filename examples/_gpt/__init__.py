"""The parts of `train_gpt.py`."""
