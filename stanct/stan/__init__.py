"""A user's Stan program: reading it, and writing the programs that temper it."""
