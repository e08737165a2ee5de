"""The path from base to target: biases, courses, bases, and exact results given x."""
