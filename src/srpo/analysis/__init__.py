"""From the logs of an experiment to its tables, figures and report."""

from srpo.analysis.figures import write_figures
from srpo.analysis.load import Results, load_results
from srpo.analysis.report import write_report
from srpo.analysis.tables import write_tables

__all__ = ["Results", "load_results", "write_figures", "write_report", "write_tables"]
