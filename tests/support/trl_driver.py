"""One process of TRL's trainer with SRPO's loss, in float64: its gradients against those of ``slow_objective``.

python trl_driver.py FOLDER METHOD PROCESSES PORT RANK ACCUMULATION STEPS_PER_GENERATION
"""

import copy
import math
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from datasets import Dataset
from helpers import Sample, slow_objective
from peft import LoraConfig, PeftModel
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, TrainerCallback

from srpo.hosts.trl import SRPOConfig, SRPOTrainer

WORDS = ["<pad>", "<end>", "say", "yes", "no", "Correct", "solution:", "Correctly", "solve", "the", "original", "left"]
SAMPLES, TEMPERATURE = 4, 0.8


def write_model(folder: Path) -> None:
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="the"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "{% for message in messages %}{{ message.content + ' ' }}{% endfor %}"
    special = {"pad_token": "<pad>", "eos_token": "<end>"}
    PreTrainedTokenizerFast(tokenizer_object=core, chat_template=template, **special).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.3}
    config = Qwen3Config(vocab_size=len(WORDS), eos_token_id=1, pad_token_id=0, bos_token_id=None, **sizes, **heads)
    Qwen3ForCausalLM(config).save_pretrained(folder)


def reward(completions: list, **_: object) -> list[float]:
    return [
        float("yes" in completion[0]["content"] or "left" in completion[0]["content"]) for completion in completions
    ]


def log_distributions(model: torch.nn.Module, prompt: Tensor, response: Tensor) -> Tensor:
    logits = model(input_ids=torch.cat([prompt, response])[None]).logits[0]
    return (logits[len(prompt) - 1 : -1] / TEMPERATURE).log_softmax(-1)


def copy_of(trainer: SRPOTrainer) -> torch.nn.Module:
    return copy.deepcopy(trainer.accelerator.unwrap_model(trainer.model))


class Compare(TrainerCallback):
    """Before each optimizer step: gradients against those of the objective over all processes' rollouts.

    The teacher is an average that is kept here, but with LoRA: then it is TRL's adapter.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.distilled = folder, 0
        self.differences: list[float] = []
        self.trainer: Any = None
        self.old: Any = None
        self.teacher: Any = None

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: object) -> None:
        trainer = self.trainer
        count, first = args.gradient_accumulation_steps, trainer._step - args.gradient_accumulation_steps
        buffered = trainer._buffered_inputs
        rank, processes = trainer.accelerator.process_index, trainer.accelerator.num_processes
        student = copy_of(trainer)
        if first % (len(buffered) * args.num_iterations) == 0:
            self.old = copy_of(trainer)
            if isinstance(student, PeftModel):
                self.teacher = copy_of(trainer)
                self.teacher.set_adapter("teacher")
            elif self.teacher is None:
                self.teacher = copy_of(trainer)
            else:
                for slow, fast in zip(self.teacher.parameters(), student.parameters(), strict=True):
                    slow.data.lerp_(fast.data, 0.05)
        own = [{key: value for key, value in part.items() if isinstance(value, Tensor)} for part in buffered]
        mine = [(first + i) % len(buffered) for i in range(count)]
        update = len(self.differences)
        torch.save((own, mine), self.folder / f"{update}-{rank}.pt")
        if processes > 1:
            dist.barrier()
        rows: list[dict[str, Tensor]] = []
        trained: list[int] = []
        for other in range(processes):
            parts, chosen = torch.load(self.folder / f"{update}-{other}.pt")
            for i, part in enumerate(parts):
                size = len(part["rewards"])
                trained += [*range(len(rows), len(rows) + size)] if i in chosen else []
                rows += [{key: value[j] for key, value in part.items()} for j in range(size)]
        samples, current = [], {}
        for i, row in enumerate(rows):
            response = row["completion_ids"][row["completion_mask"].bool()]
            prompt = row["prompt_ids"][row["prompt_mask"].bool()]
            whole = row["teacher_input_ids"][row["teacher_attention_mask"].bool()]
            with torch.no_grad():
                old = log_distributions(self.old, prompt, response)
                asked = log_distributions(self.teacher, whole[: len(whole) - len(response)], response)
            if i in trained:
                current[i] = log_distributions(student, prompt, response)
            sampled = old.gather(-1, response[:, None])[:, 0].tolist()
            values = i // args.num_generations, row["rewards"].item(), response.tolist(), sampled, old
            samples.append(Sample(*values, asked if row["self_distillation_mask"] else None))
        expected = slow_objective(trainer.method, samples, current, trained)
        assert expected is not None
        self.distilled += len(expected.divergences)
        student.zero_grad()
        expected.total.backward()
        found = {n: p.grad for n, p in trainer.accelerator.unwrap_model(trainer.model).named_parameters()}
        slow = {n: p.grad for n, p in student.named_parameters() if p.grad is not None}
        scale = max(gradient.abs().max().item() for gradient in slow.values())
        assert scale > 1e-3
        self.differences.append(max((found[n] - slow[n]).abs().max().item() / scale for n in slow))


def differences(
    folder: Path,
    method: str,
    accumulation: int,
    per_generation: int,
    name: str = "model",
    lora: bool = False,
    **changes: Any,
) -> list[float]:
    """Of three updates: the largest difference of the two gradients, as a share of the largest gradient.

    ``changes`` are other arguments of TRL's.
    """
    model = folder / name
    write_model(model)
    data = Dataset.from_list(
        [{"prompt": [{"role": "user", "content": text}]} for text in ("say yes", "say no left")] * 16
    )
    sizes = {"per_device_train_batch_size": 8, "num_generations": SAMPLES, "max_completion_length": 4, "max_steps": 3}
    sizes |= {"gradient_accumulation_steps": accumulation, "steps_per_generation": per_generation}
    rates = {"temperature": TEMPERATURE, "learning_rate": 1e-2, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}
    where = {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True, "bf16": False}
    settings: dict[str, Any] = sizes | rates | where | changes
    args = SRPOConfig(str(folder / "out"), method=method, seed=1, **settings)
    compare = Compare(folder)
    adapter = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False) if lora else None
    trainer = SRPOTrainer(
        Qwen3ForCausalLM.from_pretrained(model, dtype=torch.float64),
        reward_funcs=reward,
        args=args,
        train_dataset=data,
        eval_dataset=data.select(range(4)),
        processing_class=PreTrainedTokenizerFast.from_pretrained(model, padding_side="left"),
        callbacks=[compare],
        peft_config=adapter,
    )
    compare.trainer = trainer
    trainer.train()
    assert compare.distilled or not trainer.method.distils
    found = trainer.evaluate()
    assert sum(value for name, value in found.items() if name.startswith("eval_routing/")) == 1
    assert math.isfinite(found["eval_loss"])
    return compare.differences


def main() -> None:
    folder, method, processes, port, rank, accumulation, per_generation = sys.argv[1:]
    os.environ |= {"WORLD_SIZE": processes, "RANK": rank, "LOCAL_RANK": rank}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    torch.set_num_threads(1)
    found = differences(Path(folder), method, int(accumulation), int(per_generation), f"model{rank}")
    print("differences", *found)


if __name__ == "__main__":
    main()
