"""Evaluation: avg@k with a seed for every sample."""
