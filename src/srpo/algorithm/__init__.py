"""The method as pure functions of tensors: no I/O, no verl, no tokenizer, no configuration file (paper, sections 2, 3).

In the order of a step: ``rollouts`` (what was sampled, and the teacher's log-probs), ``routing`` (which
branch each rollout takes, section 3.1), ``branches`` (what each branch does), ``advantage`` (2.1, 4.3), ``weighting``
(3.2), ``targets`` (what the loss reads), ``distribution`` and ``divergence`` (2.2), ``objective`` (token losses
and their one denominator, 3.3). ``diagnostics`` only measures.
"""

LOGITS_CHUNK = 2**26
"""Number of logits converted to float32 at a time (``distribution.py``); the plan counts their memory."""
