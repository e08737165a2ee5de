"""Draws in, numbers out: evidence, curves, moments and their errors."""
