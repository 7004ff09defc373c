"""What tests of the report share: a finished experiment of made-up logs, its raw numbers, and its page."""

import csv
import dataclasses
import math
from html.parser import HTMLParser

from synthetic import tiny_experiment, write_results

from srpo.analysis.load import load_results
from srpo.analysis.numbers import with_numbers
from srpo.analysis.report import write_report
from srpo.analysis.verdicts import findings
from srpo.experiment.compose import load_experiment
from srpo.ground.files import read_events

EXPERIMENT = load_experiment(tiny_experiment())


MODEL = "miniature-tiny"


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def cell(rows, **key):
    (row,) = [row for row in rows if all(row[name] == value for name, value in key.items())]
    return row


def raw_log(root, benchmark, method, name, seed=1):
    """The events of a run's log ``name``."""
    return [*read_events(root / f"runs/{MODEL}/{benchmark}/{method}/seed{seed}/{name}.jsonl")]


def raw_maximum(root, benchmark, method, seconds, seed=1):
    """Table 1's protocol, straight from the log."""
    log = raw_log(root, benchmark, method, "validations", seed)
    return max((100 * entry["avg_at_k"] for entry in log if entry["clock"] <= seconds), default=math.nan)


def results_of(root, experiment=EXPERIMENT, **options):
    """Fabricate results and read them."""
    write_results(root, experiment, **options)
    return load_results(root)


def changed(results, **frames):
    """``results`` with other frames, and the numbers of these."""
    return with_numbers(dataclasses.replace(results, **frames))


def make(root, experiment=EXPERIMENT, **options):
    """Fabricate results and report them without figures, which are slow."""
    write_results(root, experiment, **options)
    return report(root, experiment)


def report(root, experiment=EXPERIMENT):
    results = load_results(root, experiment)
    write_report(results, root / "report.html")
    return (root / "report.html").read_text()


class Tags(HTMLParser):
    """Collect tags and check that they nest."""

    VOID = frozenset({"meta", "input", "img", "br", "link"})

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(page):
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags.seen


def verdicts(root, experiment=EXPERIMENT):
    return {finding.claim.id: finding.verdict for finding in findings(load_results(root, experiment))}
