"""The error of a failed save or load."""

from weft.errors import CheckpointException as CheckpointException
