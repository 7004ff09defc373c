"""From the logs of an experiment to its tables, figures and report.

Four wings: ``results`` reads, scores and contrasts; ``tables`` and ``figures`` lay out and draw what it gives;
``report`` puts everything on a page. Imports run from report to figures and tables, and from these to results.
:mod:`~srpo.analysis.outline`, which says what a report consists of, needs none of them.
"""
