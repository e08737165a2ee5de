"""Compiled inner loops, and the records that are compiled into them."""
