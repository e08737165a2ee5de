"""How a base is found."""
