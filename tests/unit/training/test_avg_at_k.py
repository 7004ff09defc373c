"""avg@k worked by hand with a scripted engine, and the evaluate stage on a tiny random model."""

import json
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
import yaml
from transformers import Qwen3Config, Qwen3ForCausalLM

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Execution, Experiment, Sampling
from srpo.experiment.job import Job, job_of
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_events, write_json
from srpo.ground.layout import Layout, RunId, model_description
from srpo.ground.repository import CONFIGS
from srpo.ground.seeds import derive_seed
from srpo.questions.splits import Question, write_split
from srpo.rollout import sglang_server
from srpo.rollout.embedded import EmbeddedEngine
from srpo.rollout.interface import MAX_RESTARTS, Completion, SamplingParams, ServersFailed
from srpo.starts.make_tokenizer import text_tokenizer
from srpo.starts.resolve import digest
from srpo.training.avg_at_k import EvaluationResult, evaluate_questions
from srpo.training.evaluate_run import Checkpoint, evaluate_base, evaluate_checkpoints, score_budgets
from srpo.training.provenance import origin_of


@pytest.fixture(scope="module")
def tokenizer():
    return text_tokenizer(["What is two plus three? <answer>5</answer>"] * 5, 300)


def make_questions(count: int = 3) -> list[Question]:
    return [
        Question(
            index=index,
            messages=[{"role": "user", "content": f"Question {index}?"}],
            ground_truth=str(index),
            reward="answer_match",
            data_source="miniature/test",
        )
        for index in range(count)
    ]


class ScriptedEngine:
    """Answers question i with its script, one response a sample; a response ending in … is cut off."""

    def __init__(self, tokenizer, script: list[list[str]]) -> None:
        self.tokenizer = tokenizer
        self.script = script

    def generate(
        self, prompt_ids: list[list[int]], params: SamplingParams, seeds: list[list[int]]
    ) -> list[list[Completion]]:
        self.prompt_ids, self.params, self.seeds = prompt_ids, params, seeds
        return [[self._complete(text) for text in texts] for texts in self.script]

    def _complete(self, text: str) -> Completion:
        ids = self.tokenizer(text.removesuffix("…"))["input_ids"]
        if text.endswith("…"):
            return Completion(ids, [0.0] * len(ids), "length")
        return Completion([*ids, self.tokenizer.eos_token_id], [0.0] * (len(ids) + 1), "stop")


SAMPLING = Sampling(rollouts=4, temperature=0.6, top_p=0.95)
RIGHT, WRONG = "<answer>{}</answer>", "<answer>nothing</answer>"
SCRIPT = [
    [RIGHT.format(0), RIGHT.format(0), WRONG, "no answer…"],
    [WRONG, WRONG, WRONG, WRONG],
    [RIGHT.format(2)] * 3 + ["<answer>2…"],
]


def test_hand_worked(tokenizer):
    engine = ScriptedEngine(tokenizer, SCRIPT)
    questions = make_questions()
    result = evaluate_questions(engine, tokenizer, questions, SAMPLING, 64, 48, ("validation", 1, 5), save=1)

    assert result.k == 4
    assert result.question_scores == [0.5, 0.0, 0.75]
    assert result.avg_at_k == pytest.approx(1.25 / 3)
    assert result.truncated_fraction == 2 / 12
    assert result.format_fraction == 10 / 12
    assert result.counts == {"right": 5, "cut": 2, "unreadable": 0, "wrong": 5}
    assert result.repeated_fraction == 0
    lengths = [len(tokenizer(text.removesuffix("…"))["input_ids"]) + (text[-1] != "…") for t in SCRIPT for text in t]
    assert result.response_length == pytest.approx(sum(lengths) / 12)

    assert engine.params == SamplingParams(temperature=0.6, max_new_tokens=48, top_p=0.95)
    assert engine.seeds == [[derive_seed("validation", 1, 5, i, j) for j in range(4)] for i in range(3)]
    prompt = "<|im_start|>user\nQuestion 0?<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(engine.prompt_ids[0]) == prompt
    assert result.samples == [
        {
            "question": 0,
            "sample": sample,
            "prompt": prompt,
            "response": SCRIPT[0][sample].removesuffix("…"),
            "ground_truth": "0",
            "reward": [1.0, 1.0, 0.0, 0.0][sample],
        }
        for sample in range(4)
    ]


def test_seeds_belong_to_questions_not_to_their_place(tokenizer):
    engine = ScriptedEngine(tokenizer, SCRIPT[:1])
    result = evaluate_questions(engine, tokenizer, make_questions()[2:], SAMPLING, 64, 48, ("evaluation",))
    assert engine.seeds == [[derive_seed("evaluation", 2, j) for j in range(4)]]
    assert result.samples == []


def test_few_samples_are_saved(tokenizer):
    many = Sampling(rollouts=16)
    engine = ScriptedEngine(tokenizer, [[WRONG] * 16] * 3)
    result = evaluate_questions(engine, tokenizer, make_questions(), many, 64, 48, ("evaluation",), save=2)
    assert [(s["question"], s["sample"]) for s in result.samples] == [(i, j) for i in range(2) for j in range(4)]


# ---------------------------------------------------------------- checkpoints


def test_budgets_share_a_checkpoints_result():
    evaluated = []

    def evaluate(path: Path) -> EvaluationResult:
        evaluated.append(path.name)
        sample = {"question": 0, "sample": 0}
        return EvaluationResult(4, [0.25, float(path.name)], 9.5, 0.0, 0.5, 0.75, {"right": 1, "wrong": 7}, [sample])

    early, late = Checkpoint(Path("0"), step=5), Checkpoint(Path("1"), step=20)
    budgets, samples = score_budgets({"0h": None, "1h": early, "5h": late, "10h": late}, evaluate)
    assert evaluated == ["0", "1"]
    assert list(budgets) == ["0h", "1h", "5h", "10h"]
    assert budgets["0h"] is None
    assert budgets["1h"] == {
        "step": 5,
        "avg_at_k": 0.125,
        "response_length": 9.5,
        "truncated_fraction": 0.0,
        "repeated_fraction": 0.5,
        "format_fraction": 0.75,
        **{"right": 1, "wrong": 7},
        "question_scores": [0.25, 0.0],
    }
    assert budgets["5h"] == budgets["10h"]
    assert budgets["5h"]["step"] == 20
    assert [sample["budget"] for sample in samples] == ["1h", "5h", "10h"]


RUN = RunId(model="miniature-tiny", benchmark="physics", method="srpo", seed=1)


@pytest.fixture
def experiment() -> Experiment:
    embedded = load_experiment(CONFIGS / "experiments" / "embedded.yaml")
    limits = embedded.training.model_copy(update={"max_response_length": 8})
    model = embedded.models["miniature-large"].model_copy(update={"name": RUN.model, "draws": "shared"})
    changes = {"training": limits, "evaluation": Sampling(rollouts=3), "models": {RUN.model: model}}
    block = embedded.matrix[0].model_copy(update={"models": [RUN.model], "seeds": [RUN.seed]})
    return embedded.model_copy(update=changes | {"matrix": [block]})


@pytest.fixture
def layout(tmp_path, tokenizer) -> Layout:
    """A base model, two checkpoints of a run and a split."""
    layout = Layout(tmp_path)
    for split in ("train", "test"):
        write_split(layout.split("physics", split), make_questions(), split)
    for seed, folder in enumerate([layout.model(RUN.model), *map(layout.run_files(RUN).selected, (5, 20))]):
        torch.manual_seed(seed)
        config = Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=128,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
        )
        Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(layout.model(RUN.model))
    write_json(model_description(layout.model(RUN.model)), {"sha256": digest(layout.model(RUN.model))})
    return layout


@pytest.fixture
def job(experiment, layout) -> Job:
    """The job of a run that was trained with the experiment's settings."""
    job = job_of(experiment, RUN.model_dump())
    layout.run_files(RUN).origin.write_text(yaml.safe_dump(origin_of(job.spec, layout, job.code)))
    return job


def selected(step: int) -> dict:
    return {"seconds": 5, "step": step, "clock": 4.0, "avg_at_k": 0.5, "checkpoint": f"weights/step{step}"}


def test_evaluate_stage(experiment, layout, job, monkeypatch):
    folder = layout.run(RUN)
    loaded = []
    original = EmbeddedEngine.from_pretrained
    monkeypatch.setattr(EmbeddedEngine, "from_pretrained", lambda path, *_: loaded.append(path) or original(path))
    write_json(folder / "summary.json", {"budgets": {"1h": None, "5h": selected(5), "10h": selected(5)}})
    evaluate_checkpoints(job, layout)

    first = json.loads((folder / "evaluation.json").read_text())
    assert loaded == [folder / "weights/step5"]
    assert first["run"] == RUN.model_dump()
    assert (first["k"], first["questions"]) == (3, 3)
    assert list(first["budgets"]) == ["1h", "5h", "10h"]
    assert first["budgets"]["1h"] is None
    assert first["budgets"]["5h"] == first["budgets"]["10h"]
    assert len(first["budgets"]["5h"]["question_scores"]) == 3
    assert 1 <= first["budgets"]["5h"]["response_length"] <= 8
    samples = list(read_events(folder / "samples.jsonl"))
    assert len(samples) == 2 * 3 * 3

    # Another selection beside it does not change a checkpoint's samples.
    write_json(folder / "summary.json", {"budgets": {"1h": selected(20), "5h": selected(5), "10h": selected(5)}})
    evaluate_checkpoints(job, layout)
    again = list(read_events(folder / "samples.jsonl"))
    assert [sample for sample in again if sample["budget"] != "1h"] == samples
    assert [s["response"] for s in again[:9]] != [s["response"] for s in again[9:18]]


def test_evaluate_base_stage(experiment, layout):
    evaluate_base(job_of(experiment, {"model": RUN.model, "benchmark": "physics"}), "physics", layout)
    folder = layout.base(RUN.model, "physics")
    evaluation = json.loads((folder / "evaluation.json").read_text())
    assert evaluation["run"] == {"model": RUN.model, "benchmark": "physics", "method": "base", "seed": 0}
    assert list(evaluation["budgets"]) == ["base"]
    assert evaluation["budgets"]["base"]["step"] == 0
    assert {sample["budget"] for sample in read_events(folder / "samples.jsonl")} == {"base"}


def test_paper_scale_is_served_by_sglang_on_all_devices_of_a_run(experiment, layout, monkeypatch):
    served = []

    @contextmanager
    def serve(checkpoint, log, options):
        served.append((checkpoint, log, options))
        yield EmbeddedEngine.from_pretrained(checkpoint)

    monkeypatch.setattr(sglang_server, "SGLangServer", serve)
    execution = Execution(
        driver="ray", rollout_engine="sglang", ranks=8, rollout_tensor_parallel=2, precision="bfloat16"
    )
    served_by_sglang = experiment.model_copy(update={"execution": execution})
    evaluate_base(job_of(served_by_sglang, {"model": RUN.model, "benchmark": "physics"}), "physics", layout)
    folder = layout.base(RUN.model, "physics")
    (checkpoint, log, options) = served[0]
    assert (checkpoint, log) == (layout.model(RUN.model), folder / "server.log")
    limits = experiment.training
    assert options.context_length == limits.max_prompt_length + limits.max_response_length
    assert (options.tensor_parallel, options.data_parallel, options.dtype) == (2, 4, "bfloat16")
    assert options.deterministic
    assert json.loads((folder / "evaluation.json").read_text())["questions"] == 3


@pytest.mark.parametrize(
    ("error", "failures", "servers"),
    [(ServersFailed("died"), 2, 3), (ServersFailed("died"), 99, 1 + MAX_RESTARTS), (SrpoError("too long"), 99, 1)],
    ids=["a server dies twice", "servers die always", "an error of the user's"],
)
def test_what_a_failed_server_ended_is_repeated(error, failures, servers, experiment, layout, monkeypatch):
    """The stub fails as a server does, after it was asked: a new one gives the same samples."""
    started = []

    class Failing(EmbeddedEngine):
        def generate(self, *args):
            samples = super().generate(*args)
            if len(started) <= failures:
                raise error
            return samples

    @contextmanager
    def serve(checkpoint, log, options):
        started.append(checkpoint)
        yield Failing.from_pretrained(checkpoint)

    monkeypatch.setattr(sglang_server, "SGLangServer", serve)
    job, files = (
        job_of(experiment, {"model": RUN.model, "benchmark": "physics"}),
        layout.base_files(RUN.model, "physics"),
    )
    evaluate_base(job, "physics", layout)
    expected, ends_well = files.samples.read_bytes(), servers == failures + 1
    files.evaluation.unlink()
    execution = job.execution.model_copy(update={"rollout_engine": "sglang"})
    with nullcontext() if ends_well else pytest.raises(type(error), match=str(error)):
        evaluate_base(job.model_copy(update={"execution": execution}), "physics", layout)
    assert (len(started), files.evaluation.exists()) == (servers, ends_well)
    assert files.samples.read_bytes() == expected
