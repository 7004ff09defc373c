"""What a model costs, from its shape: FLOPs, modelled seconds, memory. Only arithmetic, no torch."""
