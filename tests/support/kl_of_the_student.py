"""A branch from outside the package: distillation with the reverse KL, as docs/extending.md describes it."""

from srpo.algorithm.branches import Branch, register
from srpo.algorithm.divergence import generalised_jsd


def reverse_kl(method, student, teacher):
    """KL(p || q), [tokens] nats."""
    return generalised_jsd(student, teacher, alpha=1.0)


KL_OF_THE_STUDENT = register(
    Branch("kl_of_the_student", "KL of the student", loss="distillation", sibling="required", divergence=reverse_kl)
)
