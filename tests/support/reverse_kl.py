"""A branch from outside the package: distillation with the reverse KL, as docs/extending.md has it."""

from srpo.algorithm.branches import Branch, register
from srpo.algorithm.divergence import generalised_jsd


def reverse_kl(settings, student, teacher):
    """KL(p || q), [tokens] nats."""
    return generalised_jsd(student, teacher, alpha=1.0)


REVERSE_KL = register(
    Branch("reverse_kl", "reverse KL", loss="distillation", sibling="required", divergence=reverse_kl)
)
