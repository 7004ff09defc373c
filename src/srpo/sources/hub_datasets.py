"""Data sets of the Hugging Face hub as questions."""

from typing import Literal

from srpo.errors import SrpoError
from srpo.experiment.config import HubDatasetBenchmark
from srpo.experiment.rows import Row
from srpo.hub import fetch_snapshot


def load_rows(benchmark: HubDatasetBenchmark, split: Literal["train", "test"]) -> list[Row]:
    """Fetch the pinned revision of a data set, or find it in the hub's cache, and read a split.

    Raises:
        SrpoError: as :func:`srpo.hub.fetch_snapshot`; if the subset or split is not there; if a row is no question; if
            the number of rows is wrong.
    """
    wanted = benchmark.train if split == "train" else benchmark.test
    where = f"benchmark {benchmark.name}: {benchmark.repository} at {benchmark.revision[:12]}"
    folder = fetch_snapshot(benchmark.repository, benchmark.revision, where, "dataset")

    import datasets

    where = f"{where}, {wanted.split}"
    try:
        table = datasets.load_dataset(str(folder), benchmark.subset, split=wanted.split)
    except (ValueError, OSError, datasets.exceptions.DatasetsError) as error:
        raise SrpoError(f"{where}: cannot be read ({' '.join(str(error).split())[:300]})") from error
    benchmark.columns.check(table.column_names, where)
    rows = [benchmark.columns.row(record, f"{where}, row {number}") for number, record in enumerate(table, 1)]
    if len(rows) != wanted.rows:
        raise SrpoError(f"{where}: {len(rows)} rows found, {wanted.rows} expected")
    return rows
