"""The method as pure functions of tensors: no I/O, no verl, no tokenizer, no configuration file (paper, sections 2, 3).

In the order of a step: ``rollouts`` (what was sampled, and how student and teacher score it), ``routing`` (which
branch each rollout takes, section 3.1), ``branches`` (what each branch does), ``advantage`` (2.1, 4.3), ``weighting``
(3.2), ``targets`` (the constants of the loss), ``distribution`` and ``divergence`` (2.2), ``objective`` (token losses
and their one denominator, 3.3). ``diagnostics`` only measures.
"""
