"""What an experiment needs, computed before it starts: steps, hours, disk, memory. No torch."""
