"""Fits of the base."""
