"""Tests of `weft.ao`."""
