"""What every room uses: errors, names, rules of settings, random streams, archives, compilation."""
