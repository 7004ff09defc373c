"""Seconds of a training step on a GPU that was not measured, from the card's data sheet.

Generating a token takes the time to read the weights, and the keys and values of all sequences at work, from memory.
The other passes take the time of their FLOPs. Lengths and the share of the data sheet that a program reaches are
assumed; ``tests/unit/plan/test_gpus.py`` compares the result for the paper's GPU, model and settings with the paper's
step times. Arithmetic only.
"""

from dataclasses import dataclass

from srpo.algorithm.method import Method
from srpo.cost import memory
from srpo.cost.flops import model_cost
from srpo.errors import SrpoError
from srpo.experiment.config import Execution, Training, TransformerShape

MEAN_PROMPT = 379
"""Tokens of a prompt: mean of the five benchmarks' medians with Qwen3's tokenizer (docs/small-scale.md)."""

MEAN_RESPONSE, LONGEST_RESPONSE = 1090, 4096
"""Assumed tokens of responses, if the experiment allows that many.

The mean is fitted: with it the paper's card meets the paper's step times, on average over the three methods of figure
4b. Others saw shorter responses and shorter steps (docs/paper-scale.md, what was never measured).
"""

BANDWIDTH_SHARE = 0.6
"""Assumed share of a data sheet's memory bandwidth that generation reaches."""

TOKEN_SECONDS = 0.006
"""Assumed least time to generate one token of every sequence at work: kernels, sampling and scheduling."""

OTHER_SECONDS = 6.0
"""Assumed seconds of a step for all else: weights to the servers, Ray, rewards and copies."""

TEACHER_SHARE = {"grpo": 0.0, "srpo": 0.5, "sdpo": 1.0}
"""Assumed share of rollouts that the teacher scores, by the method whose passes a method shares."""


@dataclass(frozen=True)
class Gpu:
    """A card.

    Attributes:
        memory: bytes, by the data sheet, as the next two.
        bandwidth: bytes of memory per second.
        flops: dense bfloat16 FLOP/s, without sparsity.
        flops_share: assumed share of them that passes other than generation reach, recomputation counted.
    """

    memory: float
    bandwidth: float
    flops: float
    flops_share: float = 0.4


GPUS = {
    "a10g": Gpu(24e9, 600e9, 70e12),
    "l4": Gpu(24e9, 300e9, 121e12),
    "rtx4090": Gpu(24e9, 1008e9, 165e12),
    "l40s": Gpu(48e9, 864e9, 362e12),
    "a100": Gpu(80e9, 2039e9, 312e12, 0.45),
    "h100": Gpu(80e9, 3350e9, 989e12),
    "h20": Gpu(96e9, 4000e9, 148e12, 0.6),
    "h200": Gpu(141e9, 4800e9, 989e12),
}
"""Cards by the name that ``srpo plan --gpu`` takes.

Shares of FLOP/s: pretraining a 7B model with FSDP reaches 57 % of an A100 and 46 % of an H100 (PyTorch's blog,
"Maximizing training throughput", and foundation-model-stack/fms-fsdp issue 89). Steps here are shorter and have a head
of 152,000 entries and no ``torch.compile``: a review expects 35 to 45 %. The H20 has little arithmetic for its memory,
so products keep it busier; nobody has published its share. The other cards are assumed to be like the H100.
"""

PAPER_GPU = "h20"


def find_gpu(name: str) -> Gpu:
    """A card by its name.

    Raises:
        SrpoError: if it is not known.
    """
    if name not in GPUS:
        raise SrpoError(f"--gpu {name}: unknown; there is {', '.join(GPUS)}")
    return GPUS[name]


def mean_context(training: Training) -> float:
    """Mean tokens of prompt and response while a response is being generated."""
    return min(MEAN_PROMPT, training.max_prompt_length) + min(MEAN_RESPONSE, training.max_response_length) / 2


def data_sheet_seconds(
    gpu: Gpu, shape: TransformerShape, training: Training, execution: Execution, method: Method | None, like: str
) -> tuple[float, float]:
    """Seconds of a step on ``execution.ranks`` cards: generation, and all other phases.

    Args:
        method: None for the untrained model, which takes GRPO's passes.
        like: the method of :data:`TEACHER_SHARE` whose passes it shares.
    """
    response = min(MEAN_RESPONSE, training.max_response_length)
    prompt = min(MEAN_PROMPT, training.max_prompt_length)
    rows = training.questions_per_batch * training.rollouts_per_question / execution.ranks
    tensor_parallel = execution.rollout_tensor_parallel
    token_bytes = memory.kv_bytes_per_token(shape) / tensor_parallel
    room = memory.rollout_memory(shape, execution, gpu.memory)["keys and values"] / token_bytes
    # a server works on its rollouts in several rounds if it has no room for the keys and values of all
    rounds = max(1.0, rows * tensor_parallel * (prompt + response) / max(room, prompt + response))
    tokens = rounds * min(LONGEST_RESPONSE, training.max_response_length)
    weights = memory.BFLOAT16 * memory.parameters(shape) / tensor_parallel
    cached = rows * tensor_parallel * response * mean_context(training) * token_bytes
    generation = max(tokens * TOKEN_SECONDS, (tokens * weights + cached) / (BANDWIDTH_SHARE * gpu.bandwidth))
    if method is not None:  # the bound: each time as long as the first, and as often as may be
        generation *= method.generation_batches

    cost = model_cost(shape)
    score = cost.forward_flops([prompt + response])
    passes_of_teacher = method.teacher_passes if method else 0
    teacher = passes_of_teacher * TEACHER_SHARE[like] * cost.forward_flops([prompt + response + response])
    several_updates = method is None or method.mini_batch_questions < training.questions_per_batch
    before = (
        score if several_updates else TEACHER_SHARE[like] * score
    )  # old log-probs, or the student's top K of what the teacher scores
    update = (4 if execution.gradient_checkpointing else 3) * score
    passes = rows * (before + teacher + update) / (gpu.flops_share * gpu.flops)
    return generation, passes + OTHER_SECONDS
