"""SRPO's loss for other loops: a plain loop, and TRL."""
