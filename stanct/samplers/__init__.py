"""One file a method; samplers never import each other."""
