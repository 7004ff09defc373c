"""The method as pure functions of tensors: no I/O, no verl (paper, sections 2 and 3)."""
