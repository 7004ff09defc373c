"""Rollout engines: one interface, the embedded engine for CPUs, and SGLang's server."""
