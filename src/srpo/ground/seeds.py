"""Derives a seed from the purpose of a random draw, never from global state.

So order, batching, parallelism and interruptions do not change a sample.
"""

import hashlib


def derive_seed(*parts: str | int) -> int:
    """Hash the identity of a draw, e.g. ``derive_seed("rollout", run_seed, step, question, sample)``.

    Returns:
        An integer in [0, 2**63), the same on every machine and Python version.
    """
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
