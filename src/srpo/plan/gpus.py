"""Computes the seconds of a training step on a GPU that no run has measured.

Generating a token takes the time to read the weights, and the keys and values of all sequences at work, from memory.
The other passes take the time of their FLOPs, at a share of the data sheet that was measured on one H100. Lengths of
responses are assumed. ``tests/unit/plan/test_gpus.py`` holds the result against published seconds. Arithmetic only.
"""

from dataclasses import dataclass

from srpo.algorithm.method import Method
from srpo.experiment import memory
from srpo.experiment.config import Execution, Training, TransformerShape
from srpo.experiment.flops import model_cost
from srpo.experiment.step_times import timed_like
from srpo.ground.errors import SrpoError

BANDWIDTH_SHARE = 0.6
"""Assumed share of a data sheet's memory bandwidth that generation reaches."""

TOKEN_SECONDS = 0.006
"""Assumed least time to generate one token of every sequence at work: kernels, sampling and scheduling."""

OTHER_SECONDS = 6.0
"""Assumed seconds of a step for all else: weights to the servers, Ray, rewards and copies."""

TEACHER_SHARE = {"grpo": 0.0, "srpo": 0.5, "sdpo": 1.0}
"""Assumed share of rollouts that the teacher scores, by the method whose passes a method shares."""

FAST_SHARE, USUAL_SHARE, SLOW_SHARE = 0.30, 0.22, 0.18
"""Shares of an H100's FLOP/s that all passes but generation reached, recomputation counted: 8 layers of Qwen3-8B, 8 of
Qwen3-4B, and Qwen3-1.7B, on one card with shared prompts (``bench/h100/updates.csv``)."""


@dataclass(frozen=True)
class Assumed:
    """What a computed step assumes of the experiment's run, which only a run can measure.

    Attributes:
        prompt: tokens of a question. The default is the mean of the paper's benchmarks' medians with Qwen3's tokenizer
            (`rehearsal-qwen3`, last in e69762f1).
        response, longest: tokens of a batch's mean and longest response, if the experiment allows that many. The mean
            of 1,090 is fitted: with it the paper's card meets figure 4b, on average over three methods.
        training: the speed of all passes except generation, in parts of the card's usual one.
    """

    prompt: int = 379
    response: int = 1090
    longest: int = 4096
    training: float = 1.0


USUAL = Assumed()
BEST = Assumed(response=350, longest=1024, training=FAST_SHARE / USUAL_SHARE)
WORST = Assumed(longest=8192, training=SLOW_SHARE / USUAL_SHARE)
"""Between which a price lies: the shortest published responses (SDCL's means are 245 to 454) at the fastest measured
pace, and a batch that runs into the paper's limit at the slowest."""


@dataclass(frozen=True)
class Gpu:
    """A card.

    Attributes:
        memory, bandwidth, flops: by the data sheet: bytes, bytes per second, dense bfloat16 FLOP/s.
        flops_share: of these, what passes other than generation usually reach, recomputation counted.
    """

    name: str
    memory: float
    bandwidth: float
    flops: float
    flops_share: float = USUAL_SHARE

    def __str__(self) -> str:
        return f"{self.name}, {self.memory / 1e9:.0f} GB"


GPUS = {
    card.name: card
    for card in (
        Gpu("a10g", 24e9, 600e9, 70e12),
        Gpu("l4", 24e9, 300e9, 121e12),
        Gpu("rtx4090", 24e9, 1008e9, 165e12),
        Gpu("l40s", 48e9, 864e9, 362e12),
        Gpu("h100", 80e9, 3350e9, 989e12),
        Gpu("h800", 80e9, 3350e9, 989e12),
        Gpu("a100", 80e9, 2039e9, 312e12, USUAL_SHARE * 57 / 46),
        Gpu("h20", 96e9, 4000e9, 148e12, 0.6),
        Gpu("h200", 141e9, 4800e9, 989e12),
        Gpu("b200", 180e9, 8000e9, 2250e12),
    )
}
"""Cards by name. Links between cards do not count: without NVLink a step takes longer.

Only the H100's share of FLOP/s is measured. Pretraining a 7B model with FSDP reaches 57 % of an A100, 46 % of an H100
(PyTorch's blog, "Maximizing training throughput", and foundation-model-stack/fms-fsdp issue 89). The H20 has little
arithmetic for its memory, so products keep it busier: its share is assumed. The others are assumed to be like the H100.
"""


def find_gpu(name: str) -> Gpu:
    """A card by its name."""
    if name.lower() not in GPUS:
        raise SrpoError(f"--gpu {name}: unknown; there is {', '.join(GPUS)}")
    return GPUS[name.lower()]


def mean_context(training: Training, assumed: Assumed = USUAL) -> float:
    """Mean tokens of prompt and response while a response is being generated."""
    return min(assumed.prompt, training.max_prompt_length) + min(assumed.response, training.max_response_length) / 2


def card_seconds(
    gpu: Gpu,
    shape: TransformerShape,
    training: Training,
    execution: Execution,
    method: Method | None,
    assumed: Assumed = USUAL,
) -> tuple[float, float]:
    """Seconds of a step on ``execution.ranks`` cards: generation, and all other phases; without a method of GRPO's."""
    response = min(assumed.response, training.max_response_length)
    prompt = min(assumed.prompt, training.max_prompt_length)
    rows = training.questions_per_batch * training.rollouts_per_question / execution.ranks
    tensor_parallel = execution.rollout_tensor_parallel
    token_bytes = memory.kv_bytes_per_token(shape) / tensor_parallel
    room = memory.rollout_memory(shape, execution, gpu.memory)["keys and values"] / token_bytes
    # a server works on its rollouts in several rounds if it has no room for the keys and values of all
    rounds = max(1.0, rows * tensor_parallel * (prompt + response) / max(room, prompt + response))
    tokens = rounds * min(assumed.longest, training.max_response_length)
    weights = memory.BFLOAT16 * memory.parameters(shape) / tensor_parallel
    cached = rows * tensor_parallel * response * mean_context(training, assumed) * token_bytes
    generation = max(tokens * TOKEN_SECONDS, (tokens * weights + cached) / (BANDWIDTH_SHARE * gpu.bandwidth))

    scored = TEACHER_SHARE[timed_like(method)]
    cost = model_cost(shape)
    score = cost.forward_flops([prompt + response])
    teacher = scored * cost.forward_flops([prompt + response + response])
    several_updates = method is None or method.mini_batch_questions < training.questions_per_batch
    before = score if several_updates else scored * score  # old log-probs, or the top K of what the teacher scores
    update = (4 if execution.gradient_checkpointing else 3) * score
    passes = rows * (before + teacher + update) / (assumed.training * gpu.flops_share * gpu.flops)
    return generation, passes + OTHER_SECONDS
