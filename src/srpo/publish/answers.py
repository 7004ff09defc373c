"""A trained checkpoint, or the base model, answers a question: the samples are those of the evaluation."""

from dataclasses import dataclass
from pathlib import Path

from srpo.benchmarks.prompts import student_prompts
from srpo.benchmarks.splits import Question, read_split
from srpo.errors import SrpoError
from srpo.evaluation.evaluate_run import selected_checkpoints, serving
from srpo.experiment.config import Experiment
from srpo.layout import Layout, RunId
from srpo.rewards import compute_reward
from srpo.rollout.interface import SamplingParams
from srpo.seeds import derive_seed


@dataclass(frozen=True)
class Answers:
    """A question and what a checkpoint answered.

    Attributes:
        checkpoint: the folder of the weights.
        rewards: of each response; empty for the user's own question, which has no ground truth.
    """

    checkpoint: Path
    question: str
    ground_truth: str | None
    responses: list[str]
    rewards: list[float]


def checkpoint_of(experiment: Experiment, run: RunId, layout: Layout, budget: str | None) -> Path:
    """The weights that a budget selected, by default the last that selected any.

    Raises:
        SrpoError: if there is no such budget, or it selected nothing.
    """
    found = selected_checkpoints(layout.run_files(run))
    name = budget or next((name for name, selected in reversed(found.items()) if selected), None)
    point = None if name is None else found.get(name)
    if point is None:
        known = ", ".join(key for key, selected in found.items() if selected) or "none"
        raise SrpoError(f"{layout.run(run)}: no checkpoint of budget {budget}; there is {known}")
    return point.path


def answer(
    experiment: Experiment,
    run: RunId,
    layout: Layout,
    budget: str | None = None,
    question: int | str = 0,
    samples: int = 1,
) -> Answers:
    """Ask a test question by its number, or the user's own question.

    The ``samples`` responses to a test question are the first ones of the evaluation. A run of method ``base`` is the
    untrained model.

    Raises:
        SrpoError: if there is no such question or checkpoint.
    """
    from srpo.models.tokenizer import open_tokenizer  # slow to import

    base = run.method == "base"
    base_name = run.model if base else experiment.run(run).model.name
    base_model, data_set = layout.model(base_name), experiment.data_set(run.benchmark, base_name).data_set
    checkpoint = base_model if base else checkpoint_of(experiment, run, layout, budget)
    files = layout.base_files(run.model, run.benchmark) if base else layout.run_files(run)
    asked = _question(question, layout.split(data_set, "test"))
    tokenizer = open_tokenizer(base_model)
    limits, sampling = experiment.training, experiment.evaluation
    prompts = student_prompts(tokenizer, [asked.messages], limits.max_prompt_length)
    seeds = [[derive_seed("evaluation", *run.model_dump().values(), asked.index, j) for j in range(samples)]]
    params = SamplingParams(sampling.temperature, limits.max_response_length, sampling.top_p)
    with serving(experiment, checkpoint, files.server_log.with_name("generate.log")) as engine:
        (completions,) = engine.generate(prompts, params, seeds)
    responses = tokenizer.batch_decode([c.token_ids for c in completions], skip_special_tokens=True)
    own = isinstance(question, str)
    rewards = [] if own else [compute_reward(asked.reward, response, asked.ground_truth) for response in responses]
    return Answers(checkpoint, asked.messages[-1]["content"], None if own else asked.ground_truth, responses, rewards)


def _question(asked: int | str, split: Path) -> Question:
    if isinstance(asked, str):
        return Question(0, [{"role": "user", "content": asked}], "", "", "")
    questions = {question.index: question for question in read_split(split)}
    if asked not in questions:
        raise SrpoError(f"--question {asked}: the test split has 0 to {max(questions)}")
    return questions[asked]
