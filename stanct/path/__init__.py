"""The path from base to target: biases, courses, bases, and what follows exactly given x."""
