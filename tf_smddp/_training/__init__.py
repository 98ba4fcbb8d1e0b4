"""What a training is made of: tapes, optimizers, hooks, checkpoints, data."""
