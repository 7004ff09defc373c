"""A trained checkpoint for others: its model card, its answers, the way to the hub."""
