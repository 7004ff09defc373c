"""Sampling responses: one engine interface, the embedded engine for CPUs, and SGLang's server."""
