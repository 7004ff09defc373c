"""Training runs: the clock, the pipeline of a step, checkpoints, and the loop."""
