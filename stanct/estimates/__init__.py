"""Estimates from draws: evidence, curves, moments and their errors."""
