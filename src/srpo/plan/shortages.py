"""Ways in which an experiment does not fit into a GPU's memory, with what to change."""

from srpo.experiment import memory
from srpo.experiment.config import Experiment


def shortages(experiment: Experiment, gpu: float) -> list[str]:
    """A line for each way in which a model does not fit into ``gpu`` bytes, and what to change; none without SGLang."""
    execution, training = experiment.execution, experiment.training
    if execution.rollout_engine != "sglang":
        return []
    longest = training.max_prompt_length + training.max_response_length
    floor = training.max_reprompt_len + training.max_response_length
    lower_tokens = f"lower execution.max_tokens_per_rank (to {floor} at least) or set execution.offload_teacher"
    lines, teacher = [], some_teacher_has_weights(experiment)
    for name, model in experiment.models.items():
        shape = memory.shape_of(model)
        rollout = memory.rollout_memory(shape, execution, gpu, teacher)
        for what, items, remedy in (
            ("an update", memory.update_memory(shape, execution, training, teacher), lower_tokens),
            ("generation", rollout, "lower execution.rollout_memory_fraction"),
        ):
            if (needed := sum(items.values())) > gpu:
                largest = sorted(items.items(), key=lambda item: -item[1])[:3]
                most = "; ".join(f"{item}: {gigabytes(size)}" for item, size in largest)
                lines.append(
                    f"{name}: {what} needs about {gigabytes(needed)} of {gigabytes(gpu)} GB per GPU ({most}); {remedy}"
                )
        per_token = memory.kv_bytes_per_token(shape) / execution.rollout_tensor_parallel
        if rollout["keys and values"] < longest * per_token:
            lines.append(
                f"{name}: a server's share of {gigabytes(gpu)} GB has no room for a sequence of {longest} tokens; "
                "raise execution.rollout_memory_fraction or rollout_tensor_parallel"
            )
    return lines


def some_teacher_has_weights(experiment: Experiment) -> bool:
    """Whether some method's teacher has its own weights, for which there must be room."""
    return any(method.teacher_has_weights for method in experiment.methods.values())


def gigabytes(size: float) -> str:
    """Bytes in GB (10^9), with three digits."""
    return f"{size / 1e9:.3g}" if abs(size) < 100e9 else f"{size / 1e9:.0f}"
