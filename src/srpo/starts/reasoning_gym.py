"""Questions of tasks of the package reasoning-gym: procedural, each with its scorer (Stojanovski et al. 2025).

The package seeds question number i of a task with ``seed + i``. Both splits come from one such sequence: the first
distinct questions are the test split, the next ones the train split, so that no seed and no question is in both. The
same words in another order are the same question: the greatest common divisor of 28 and 18 is that of 18 and 28.
"""

import json
import re

from srpo.experiment.config import ReasoningGymBenchmark
from srpo.ground.errors import SrpoError
from srpo.questions.rows import Row

INSTRUCTION = """Given a question, find the answer. Respond in the following format:
<reasoning>
...
</reasoning>
<answer>
...
</answer>

In the answer, give only the answer itself, and nothing else."""
"""The system message: the answer format of the paper's multiple-choice questions."""

DRAWS = 4
"""How many questions are drawn at most for each that is needed, if a task repeats itself."""


def task_rows(benchmark: ReasoningGymBenchmark) -> dict[str, list[Row]]:
    """Draw both splits of a task; the answer is the question's entry in JSON, which the task's scorer needs."""
    import reasoning_gym as gym

    where = f"benchmark {benchmark.name}: task = {benchmark.task}"
    needed = benchmark.train_questions + benchmark.test_questions
    drawn = gym.create_dataset(benchmark.task, seed=benchmark.seed, size=DRAWS * needed, **benchmark.settings)
    rows: dict[str, Row] = {}
    for index in range(DRAWS * needed):
        if len(rows) == needed:
            break
        entry = drawn[index]
        messages = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": entry["question"]}]
        # what JSON cannot hold (fractions, say) becomes text; rewards.check_truths refuses a task whose scorer needs it
        row = Row(messages, json.dumps(entry, sort_keys=True, default=str))
        rows.setdefault(" ".join(sorted(re.findall(r"\w+|[^\w\s]", entry["question"]))), row)
    if len(rows) < needed:
        raise SrpoError(f"{where}: {len(rows)} distinct questions of {DRAWS * needed}, {needed} asked for; ask fewer")
    questions = [*rows.values()]
    return {"test": questions[: benchmark.test_questions], "train": questions[benchmark.test_questions :]}
