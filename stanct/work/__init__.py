"""How work is carried out: workers, checkpoints, progress, isolation."""
