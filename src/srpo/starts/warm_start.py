"""The supervised start of a model on two cores: minutes, and the same result every time on one machine.

Muon for the matrices makes it short for a new model; a pretrained model learns only a format, with AdamW. The solution
in an informed prompt is learnt like a response.
"""

import math
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean

import torch
import torch.nn.functional as F
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from srpo.experiment.config import Architecture, WarmStart
from srpo.ground.seeds import derive_seed
from srpo.questions.prompts import student_prompts
from srpo.questions.rewards import compute_reward
from srpo.rollout.embedded import EmbeddedEngine
from srpo.rollout.interface import SamplingParams
from srpo.starts.corpus import Corpus, Example
from srpo.starts.muon import Muon

WARMUP, DECAY_FROM = 0.02, 0.2
"""Fractions of the steps at which the learning rate's warm-up ends and its decay begins."""

POOL_BATCHES = 16
"""Batches whose examples are drawn, encoded and sorted by length together."""

PARTS = 2
"""Parts of a batch that are computed at the same time; the number of cores does not change it, nor the result."""

PROBE_SAMPLES = 4


@dataclass(frozen=True)
class _Row:
    """An encoded example and the positions of the tokens to be learnt."""

    ids: list[int]
    learnt: list[int]


def new_model(architecture: Architecture, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        intermediate_size=architecture.intermediate_size,
        num_hidden_layers=architecture.num_hidden_layers,
        num_attention_heads=architecture.num_attention_heads,
        num_key_value_heads=architecture.num_key_value_heads,
        head_dim=architecture.hidden_size // architecture.num_attention_heads,
        max_position_embeddings=architecture.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        # at this width the usual 0.02 leaves the first few hundred steps without a signal
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("weights", seed))
        return Qwen3ForCausalLM(config)


def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    corpus: Corpus,
    settings: WarmStart,
    pretrained: bool = False,
) -> float:
    """Train ``model`` in place, on two cores if they are idle.

    The loss is the mean over a batch's tokens that are part of a response, shown solutions among them. The
    learning rate warms up, stays constant, and decays along a cosine. At the end a new model's weights are rounded to
    bfloat16.

    Returns:
        The mean loss of the last tenth of the steps.
    """
    optimizers = _optimizers(model, settings.learning_rate, pretrained)
    batches = make_batches(tokenizer, corpus, settings)
    losses = []
    model.train()
    pause = 0.1 if sys.stderr.isatty() else 30  # seconds between two bars; a log keeps them all
    with (
        _one_thread(),
        ThreadPoolExecutor(PARTS, initializer=torch.set_num_threads, initargs=(1,)) as threads,
        tqdm(range(settings.steps), desc="warm start", unit="step", mininterval=pause) as progress,
    ):
        for step in progress:
            loss = backward(model, next(batches), tokenizer.pad_token_id, threads)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = settings.learning_rate * learning_rate_factor(step / settings.steps)
                optimizer.step()
            losses.append(loss)
            progress.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    if not pretrained:
        with torch.no_grad():
            for parameter in model.parameters():  # a stored base model is half as large
                parameter.copy_(parameter.bfloat16())
    model.eval()
    return fmean(losses[-math.ceil(settings.steps / 10) :])


def probe_accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    corpus: Corpus,
    seed: int,
    questions: int,
    max_new_tokens: int = 128,
) -> dict[str, dict[str, float]]:
    """Measure, at temperature 1, how often the model is right without and with a solution in its prompt.

    Returns:
        ``{kind of question: {"plain": .., "with_solution": ..}}``
    """
    engine = EmbeddedEngine(model.config, {tokenizer.eos_token_id}, tokenizer.pad_token_id)
    engine.update_weights(model.state_dict().items())
    params = SamplingParams(temperature=1.0, max_new_tokens=max_new_tokens)
    longest = model.config.max_position_embeddings - max_new_tokens
    key = f"architecture.max_position_embeddings - {max_new_tokens} for a response"
    accuracy: dict[str, dict[str, float]] = {}
    with _one_thread():
        for name, probes in corpus.probes(random.Random(derive_seed("probes", seed)), questions).items():
            probed = [question for question, _ in probes]
            asked = {"plain": [question.messages for question in probed], "with_solution": [m for _, m in probes]}
            accuracy[name] = {}
            for kind, conversations in asked.items():
                prompts = student_prompts(tokenizer, conversations, longest, key)
                seeds = [
                    [derive_seed("probe", seed, kind, name, i, j) for j in range(PROBE_SAMPLES)]
                    for i in range(len(prompts))
                ]
                rewards = [
                    compute_reward(question.reward, tokenizer.decode(c.token_ids[:-1]), question.ground_truth)
                    for question, group in zip(probed, engine.generate(prompts, params, seeds), strict=True)
                    for c in group
                ]
                accuracy[name][kind] = round(fmean(rewards), 3)
    return accuracy


def _optimizers(model: PreTrainedModel, learning_rate: float, pretrained: bool) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices of a new model, AdamW for the rest and for all of a pretrained model."""
    if pretrained:
        return [torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01, fused=True)]
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (matrices if parameter.ndim == 2 and "embed_tokens" not in name else others).append(parameter)
    muon = Muon(matrices, lr=learning_rate, weight_decay=0.01)
    return [muon, torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True)]


def learning_rate_factor(progress: float) -> float:
    if progress < WARMUP:
        return (progress + 0.1 * WARMUP) / (1.1 * WARMUP)
    if progress < DECAY_FROM:
        return 1.0
    return 0.02 + 0.98 * (1 + math.cos(math.pi * (progress - DECAY_FROM) / (1 - DECAY_FROM))) / 2


def make_batches(tokenizer: PreTrainedTokenizerFast, corpus: Corpus, settings: WarmStart) -> Iterator[list[_Row]]:
    """Yield batches of examples of similar length, in random order."""
    rng = random.Random(derive_seed("warm start", settings.seed))
    size = settings.batch_size

    def draw_pool() -> list[list[_Row]]:
        pool = _encode(tokenizer, [corpus.draw(rng) for _ in range(size * POOL_BATCHES)])
        pool.sort(key=lambda row: len(row.ids))
        batches = [pool[start : start + size] for start in range(0, len(pool), size)]
        rng.shuffle(batches)
        return batches

    # examples are drawn in parallel with the training, if there is an idle core
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(draw_pool)
        while True:
            batches = coming.result()
            coming = thread.submit(draw_pool)
            yield from batches


def _encode(tokenizer: PreTrainedTokenizerFast, examples: list[Example]) -> list[_Row]:
    prompts = tokenizer.apply_chat_template(
        [example.messages for example in examples], tokenize=False, add_generation_prompt=True
    )
    responses = [example.response + tokenizer.eos_token for example in examples]
    encode = tokenizer.backend_tokenizer.encode_batch
    rows = []
    for example, text, prompt, response in zip(examples, prompts, encode(prompts), encode(responses), strict=True):
        learnt = list(range(len(prompt.ids), len(prompt.ids) + len(response.ids)))
        if example.solution is not None:
            start = text.rindex(example.solution)
            end = start + len(example.solution)
            learnt += [i for i, (a, b) in enumerate(prompt.offsets) if start <= a and b <= end]
        rows.append(_Row(prompt.ids + response.ids, learnt))
    return rows


def backward(model: PreTrainedModel, batch: list[_Row], pad: int, threads: ThreadPoolExecutor) -> float:
    """Set the gradients of the mean loss over the batch's learnt tokens, and return the loss.

    The batch has the same parts on every machine, and their gradients are added in the same order.
    """
    parameters = list(model.parameters())
    tokens = sum(len(row.learnt) for row in batch)

    def of_part(part: list[_Row]) -> tuple[float, tuple[torch.Tensor, ...]]:
        loss = summed_loss(model, part, pad) / tokens
        return loss.item(), torch.autograd.grad(loss, parameters)

    size = math.ceil(len(batch) / PARTS)
    parts = [batch[start : start + size] for start in range(0, len(batch), size)]
    model.zero_grad()
    total = 0.0
    for loss, gradients in threads.map(of_part, parts):
        total += loss
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
    return total


def summed_loss(model: PreTrainedModel, rows: list[_Row], pad: int) -> torch.Tensor:
    width = max(len(row.ids) for row in rows)
    ids = torch.tensor([row.ids + [pad] * (width - len(row.ids)) for row in rows])
    # padding comes last, where nothing attends to it, so no mask is needed
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    # logits where they are needed: most positions are questions or padding
    learnt = torch.tensor([i * width + position for i, row in enumerate(rows) for position in row.learnt])
    logits = model.lm_head(hidden.flatten(0, 1)[learnt - 1])
    return F.cross_entropy(logits, ids.flatten()[learnt], reduction="sum")


@contextmanager
def _one_thread() -> Iterator[None]:
    """Several threads would change the order of sums, and are not faster on such small matrices."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
