"""Helpers for all rooms: files, paths, typed YAML and its error messages, seeds, text, the machine."""
