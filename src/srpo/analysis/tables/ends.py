"""The mean of the last three validations, without any selection: rows and columns as in table 1."""

from srpo.analysis.results import Results
from srpo.analysis.tables.table import Table, comparability, intervals_note
from srpo.analysis.tables.table1 import score_view, scores_of_main_methods


def table(results: Results) -> Table:
    frame = results.in_order(scores_of_main_methods(results, ("end",)))
    notes = [
        "Mean of the last three validations within each budget, percent. It selects no checkpoint, so it shows a late "
        f"fall, which the score of the best checkpoint hides. {intervals_note(frame['end_unit'])}",
        *comparability(results),
    ]
    digits = dict.fromkeys(["end", "end_low", "end_high"], 1)
    return Table("Scores at the end of each budget", frame, notes, digits, [score_view(results, frame, "end", "")])
