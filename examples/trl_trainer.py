"""SRPO in TRL 1.16: its SDPO trainer with another loss. It samples, shows siblings and keeps the teacher as it does.

python examples/trl_trainer.py

Needs TRL, which ``make env`` does not install: ``python -m pip install --no-deps trl==1.16.0``. A call of the loss must
see a whole mini-batch, so there is one process and no gradient accumulation.
"""

import tempfile

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen3Config, Qwen3ForCausalLM
from trl.experimental.sdpo import SDPOConfig, SDPOTrainer

import srpo


class SRPOTrainer(SDPOTrainer):
    """``method`` decides on routing, loss and weights; ``args`` on sampling, optimizer and teacher."""

    def __init__(self, *args, method: str = "srpo", **kwargs):
        super().__init__(*args, **kwargs)
        self.method = srpo.load_method(method)
        self.args.teacher_update_rate = self.method.teacher_update_rate
        parts = self.accelerator.num_processes * self.args.gradient_accumulation_steps
        if parts > 1 or self.args.per_device_train_batch_size % self.num_generations:
            raise ValueError("the mini-batch must be whole: one process, no accumulation, groups of num_generations")

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Section 3.3 on the mini-batch in ``inputs``."""
        found = self._compute_teacher_student_logits(model, self.teacher_model, inputs)
        rewards = inputs["rewards"]
        loss, metrics = srpo.loss(
            found.student_logits,
            found.teacher_logits,
            found.completion_ids,
            found.completion_mask,
            rewards,
            torch.arange(len(rewards)) // self.num_generations,
            self.method,
            old_log_probs=inputs.get("old_per_token_logps"),
        )
        for name, value in metrics.items():
            self._metrics["train" if model.training else "eval"][name].append(value)
        return loss


def write_tiny_model(folder: str) -> None:
    """A random Qwen3 whose tokens are words; TRL loads the teacher from a folder or the hub."""
    words = ["<pad>", "<end>", "say", "yes", "no", "Correct", "solution:", "Correctly", "solve", "the", "original"]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="the"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "{% for message in messages %}{{ message.content + ' ' }}{% endfor %}"
    special = {"pad_token": "<pad>", "eos_token": "<end>"}
    PreTrainedTokenizerFast(tokenizer_object=core, chat_template=template, **special).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    config = Qwen3Config(vocab_size=len(words), eos_token_id=1, pad_token_id=0, bos_token_id=None, **sizes, **heads)
    Qwen3ForCausalLM(config).save_pretrained(folder)


def says_yes(completions: list, **_: object) -> list[float]:
    """The toy's reward."""
    return [float(completion[0]["content"].startswith("yes")) for completion in completions]


def main(steps: int = 30) -> list[float]:
    """Train the tiny model to say yes; returns the mean reward of each step."""
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": "say yes"}]}] * 8)
    with tempfile.TemporaryDirectory() as folder:
        write_tiny_model(folder)
        args = SDPOConfig(
            folder,
            per_device_train_batch_size=32,
            gradient_accumulation_steps=1,
            num_generations=8,
            max_completion_length=4,
            learning_rate=5e-3,
            max_steps=steps,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
            bf16=False,
            seed=1,
        )
        trainer = SRPOTrainer(folder, reward_funcs=says_yes, args=args, train_dataset=data)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    logged = [entry for entry in trainer.state.log_history if "routing/sdpo_fraction" in entry]
    rewards = [entry["self_distillation/reward_mean"] for entry in logged]
    for number, entry in enumerate(logged, 1):
        if number % 5 == 0:
            print(f"step {number}: reward {rewards[number - 1]:.2f}, distilled {entry['routing/sdpo_fraction']:.2f}")
    return rewards


if __name__ == "__main__":
    main()
