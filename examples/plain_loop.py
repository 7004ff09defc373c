"""SRPO in a plain PyTorch loop: a tiny recurrent model begins to learn ten answers, on a CPU in seconds.

python examples/plain_loop.py

A question is a number, its answer two random digits. The model first learns to repeat a shown solution, as language
models can; the self-teacher needs no more.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

import srpo

QUESTIONS, ROLLOUTS, DIGITS, TOKENS = 10, 8, 6, 2
BLANK = QUESTIONS  # in the prompt, if no solution is shown
METHOD = srpo.load_method("srpo", learning_rate=2e-3)


class Model(nn.Module):
    """Reads a question, a solution or blanks, and the response so far; predicts the next digit."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(QUESTIONS + 1, 32), nn.Linear(64, DIGITS)
        self.recurrent = nn.GRU(32, 64, batch_first=True)

    def forward(self, questions: Tensor, shown: Tensor, responses: Tensor) -> Tensor:
        """The logits [rollouts, tokens, digits] that predict the responses."""
        tokens = torch.cat([questions[:, None], shown, responses[:, :-1]], 1)
        return self.head(self.recurrent(self.embedding(tokens))[0])[:, -TOKENS:]

    @torch.no_grad()
    def sample(self, questions: Tensor, shown: Tensor) -> Tensor:
        responses = torch.zeros_like(shown)
        for t in range(TOKENS):
            responses[:, t] = self(questions, shown, responses)[:, t].softmax(-1).multinomial(1)[:, 0]
        return responses


def main(steps: int = 80) -> list[float]:
    """Train; returns the mean reward of each step."""
    torch.manual_seed(0)
    answers = torch.randint(DIGITS, (QUESTIONS, TOKENS))
    questions = torch.arange(QUESTIONS).repeat_interleave(ROLLOUTS)
    blank, mask = torch.full((len(questions), TOKENS), BLANK), torch.ones(len(questions), TOKENS)
    student, mean_rewards = Model(), []
    optimizer = torch.optim.Adam(student.parameters(), METHOD.learning_rate)

    def update(loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(200):  # learns to repeat a solution, and to guess if none is shown
        solutions = torch.randint(DIGITS, blank.shape)
        shown = solutions.where(torch.rand(len(blank), 1) < 0.5, blank)
        update(nn.functional.cross_entropy(student(questions, shown, solutions).mT, solutions))
    teacher = deepcopy(student)
    for step in range(steps):
        responses = student.sample(questions, blank)
        rewards = (responses == answers[questions]).all(1).float()
        routes = srpo.route(rewards, questions, METHOD)
        shown = responses[routes.shown_sibling].where(routes.sibling_available[:, None], blank)
        with torch.no_grad():
            teacher_logits = teacher(questions, shown, responses)
        logits = student(questions, blank, responses)
        loss, metrics = srpo.loss(logits, teacher_logits, responses, mask, rewards, questions, METHOD)
        update(loss)
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.data.lerp_(fast.data, METHOD.teacher_update_rate)
        mean_rewards.append(rewards.mean().item())
        if step % 10 == 9:
            print(f"step {step + 1}: reward {mean_rewards[-1]:.2f}, distilled {metrics['routing/sdpo_fraction']:.2f}")
    return mean_rewards


if __name__ == "__main__":
    main()
