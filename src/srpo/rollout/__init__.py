"""Sampling responses: one engine interface and the embedded decoder behind it."""
