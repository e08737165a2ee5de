"""What samplers return: runs, their estimates and diagnostics, on disk and in ArviZ."""
