"""Reading of a user's Stan program, and generation of the programs that temper it."""
