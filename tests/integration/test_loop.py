"""A whole training step of the driver against an independent float64 implementation on plain transformers."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml
from helpers import METHODS, TEACHERS
from tiny import hash_reward, prepare, tiny_experiment

from srpo import cli
from srpo.benchmarks.prompts import teacher_messages
from srpo.files import read_events, read_json
from srpo.policy.in_process import InProcessPolicy
from srpo.rollout.embedded import EmbeddedEngine
from srpo.training.loop import Run
from srpo.training.step import Step


@pytest.fixture(autouse=True)
def _rewards(monkeypatch):
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)


@pytest.fixture
def start(tmp_path):
    def start(method, **training):
        spec, layout = prepare(tiny_experiment(method, **training), tmp_path / f"{method}{training}".replace("/", "-"))
        if method == "grpo":  # one update, so that the policy of the update is the base model
            spec = spec.model_copy(update={"method": spec.method.model_copy(update={"mini_batch_questions": 4})})
        run = Run(spec, layout, InProcessPolicy(spec, layout.model(spec.id.model)))
        run.resume()
        return run

    return start


@pytest.fixture
def spy(monkeypatch):
    return lambda run: record(run, monkeypatch)


def record(run, monkeypatch):
    """Record the rollouts and old log-probs of the next step and the gradients of each of its updates."""
    seen, engine = {"gradients": []}, run.policy.worker.actor.engine
    generate, compute, step = Step.generate, Step.compute_log_prob, engine.optimizer_step

    def generating(self, questions):
        seen["questions"], seen["rollouts"] = questions, generate(self, questions)
        return seen["rollouts"]

    def computing(self, batch):
        seen["old_log_probs"] = compute(self, batch)
        return seen["old_log_probs"]

    def stepping():
        seen["gradients"].append({n: local(p.grad).clone() for n, p in engine.module.named_parameters()})
        return step()

    monkeypatch.setattr(Step, "generate", generating)
    monkeypatch.setattr(Step, "compute_log_prob", computing)
    engine.optimizer_step = stepping
    return seen


def local(tensor):
    return tensor.detach().to_local() if hasattr(tensor, "to_local") else tensor.detach()


def reference_gradient(run, seen, teacher=None):
    """Gradient of section 3.3's objective, rollout by rollout, in float64; the policy is the base.

    Args:
        teacher: a model in float64; None: the base.
    """
    from transformers import AutoModelForCausalLM

    path = run.policy.worker.actor.engine.model_config.local_path
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64)
    method, rollouts, questions = run.spec.method, seen["rollouts"], seen["questions"]
    rewards = rollouts.rewards.double().view(len(questions), -1)
    rows = []
    for q in range(len(questions)):
        right = [j for j in range(rewards.shape[1]) if rewards[q, j] == 1]
        for j in range(rewards.shape[1]):
            sibling = next((k for k in right if k != j), None)
            correct = "correct" if rewards[q, j] == 1 else "wrong"
            branch = getattr(method.routing, f"{correct}_{'with' if sibling is not None else 'without'}_sibling")
            rows.append((q, j, branch, sibling, rewards[q, j] - rewards[q].mean()))

    def logits(prompt, response, model=model):
        ids = torch.cat([prompt, response]).unsqueeze(0)
        return model(input_ids=ids).logits[0, len(prompt) - 1 : -1]

    total, denominator, distilled = 0.0, 0, []
    for q, j, branch, sibling, advantage in rows:
        i = q * rewards.shape[1] + j
        if branch == "dropped":
            continue
        response = rollouts.responses[i]
        z = logits(rollouts.prompts[i], response)
        log_p = z.log_softmax(-1)
        y = log_p.gather(-1, response.unsqueeze(-1)).squeeze(-1)
        correction = (y.detach() - rollouts.rollout_log_probs[i].double()).exp().clamp(max=2)
        denominator += len(response)
        if sibling is not None and branch in ("sdpo", "mix", "rlsd", "kl_of_the_student"):
            messages = teacher_messages(questions[q].messages, rollouts.texts[q * rewards.shape[1] + sibling])
            text = run.policy.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            with torch.no_grad():
                shown = torch.tensor(run.policy.tokenizer.encode(text))
                log_q = logits(shown, response, teacher or model).log_softmax(-1)
        if branch in ("sdpo", "kl_of_the_student"):
            p, q_ = log_p.exp(), log_q.exp()
            top = log_p.detach().topk(method.distillation_topk).indices
            b = [torch.cat([d.gather(-1, top), 1 - d.gather(-1, top).sum(-1, keepdim=True)], -1) for d in (p, q_)]
            m = (b[0] + b[1]) / 2
            if branch == "sdpo":
                divergence = sum((x * (x.log() - m.log())).sum(-1) for x in b) / 2
            else:
                divergence = (b[0] * (b[0].log() - b[1].log())).sum(-1)
            weight = torch.exp(method.entropy_beta * (q_ * log_q).sum(-1))
            if method.group_weight == "spread":
                weight = weight * rewards[q].std(correction=0)  # of zeros and ones: sqrt(p (1 - p))
            distilled.append((divergence, correction, weight))
            continue
        token_advantage = advantage.expand(len(response))
        if branch == "mix":
            gap = log_q.gather(-1, response.unsqueeze(-1)).squeeze(-1) - y.detach() if sibling is not None else 0
            token_advantage = 0.9 * token_advantage + 0.1 * gap
        if branch == "rlsd" and sibling is not None:
            gap = log_q.gather(-1, response[:, None]).flatten() - y.detach()
            towards = gap * torch.sign(advantage)
            token_advantage = token_advantage * (0.5 + 0.5 * towards.exp().clip(0.8, 1.2))
        if branch == "anchored":
            with torch.no_grad():
                log_q = logits(rollouts.prompts[i], response, teacher or model).log_softmax(-1)
            token_advantage = token_advantage + 0.1 * (log_q.gather(-1, response[:, None]).flatten() - y.detach())
        total = total - ((y - y.detach()).exp() * token_advantage * correction).sum()
    if distilled:
        divergence, correction, weight = (torch.cat(parts) for parts in zip(*distilled, strict=True))
        if method.preserve_loss_scale:
            unit = (weight * divergence.detach()).sum() / divergence.detach().sum()
        else:
            unit = weight.mean()
        total = total + (divergence * correction * weight / unit).sum()
    (total / denominator).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("method", [*METHODS, *TEACHERS])
def test_gradient_of_a_step_matches_an_independent_implementation(start, spy, method):
    run = start(method)
    seen = spy(run)
    run.take_step()
    (gradients,) = seen["gradients"]
    for name, expected in reference_gradient(run, seen).items():
        np.testing.assert_allclose(gradients[name], expected, rtol=2e-3, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("method", ["srpo", "advantage_mix", "grpo_with_anchor", "rlsd"])
def test_gradient_with_a_teacher_that_is_not_the_student(start, spy, method):
    from transformers import AutoModelForCausalLM

    run = start(method)
    engine = run.policy.worker.actor.engine
    teacher = AutoModelForCausalLM.from_pretrained(engine.model_config.local_path, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for own, other in zip(engine.teacher.parameters(), teacher.parameters(), strict=True):
            noise = 0.05 * torch.randn(other.shape, generator=generator)
            local(own).add_(noise)
            other.add_(noise)
    seen = spy(run)
    run.take_step()
    (gradients,) = seen["gradients"]
    of_the_base = reference_gradient(run, seen)
    far = 0.0
    for name, expected in reference_gradient(run, seen, teacher).items():
        np.testing.assert_allclose(gradients[name], expected, rtol=2e-3, atol=2e-6, err_msg=name)
        far = max(far, (expected - of_the_base[name]).abs().max().item())
    assert far > 1e-4  # the noise matters


def test_rollout_engine_and_trainer_agree_on_log_probs(start, spy):
    run = start("srpo_equal_loss_scale")  # whose weights need a pass before the only update
    seen = spy(run)
    run.take_step()
    assert len(seen["old_log_probs"]) == len(seen["rollouts"])
    for row, old in seen["old_log_probs"].items():
        torch.testing.assert_close(old, seen["rollouts"].rollout_log_probs[row], rtol=0, atol=1e-5)


@pytest.mark.usefixtures("any_processor")
@pytest.mark.parametrize(("precision", "least", "most"), [("float32", 0, 1e-5), ("bfloat16", 1e-3, 0.07)])
def test_the_log_tells_a_sampler_with_other_weights(precision, least, most, start, monkeypatch):
    """The mean importance weight does not: it is 1 for any policy that samples from itself."""
    run = start("grpo", execution={"precision": precision})
    run.take_step()
    send = EmbeddedEngine.update_weights

    def send_others(engine, weights):
        torch.manual_seed(0)
        send(engine, ((name, weight + 0.05 * weight.std() * torch.randn_like(weight)) for name, weight in weights))

    monkeypatch.setattr(EmbeddedEngine, "update_weights", send_others)
    run.take_step()
    honest, other = (event["metrics"] for event in read_events(run.folder / "steps.jsonl"))
    assert least <= honest["rollout_corr/log_prob_rms"] < most
    assert honest["rollout_corr/k3_kl"] < most**2
    assert other["rollout_corr/log_prob_rms"] > 0.3
    assert other["rollout_corr/k3_kl"] > 0.03
    assert other["actor/rollout_is_weight"] == pytest.approx(1, abs=0.1)  # of about 90 tokens


def test_a_run_that_evaluates_itself_writes_what_the_evaluation_alone_writes(tmp_path):
    experiment = tiny_experiment("srpo", max_steps=2)
    spec, layout = prepare(experiment, tmp_path)
    layout.experiment.write_text(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    run, files = spec.id, layout.run_files(spec.id)
    options = ["--model", run.model, "--benchmark", run.benchmark, "--method", run.method]
    options += ["--experiment", str(layout.experiment)]

    def written():
        evaluation = read_json(files.evaluation)
        del evaluation["wall_seconds"]
        return evaluation, files.samples.read_text()

    assert cli.main(["train", *options, "--evaluate"]) == 0
    found = written()
    assert found[1]
    for path in (files.evaluation, files.samples):
        path.unlink()
    subprocess.run([sys.executable, "-m", "srpo", "evaluate", *options], check=True)
    assert written() == found
