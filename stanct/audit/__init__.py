"""Checks of stanct itself: its generated programs, and the state of an installation."""
