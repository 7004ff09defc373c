"""What every room stands on: files and paths, typed YAML and its mistakes, seeds, text, the machine."""
