"""The evaluation server against a double of SGLang: samples, every fault, and what is left behind."""

import dataclasses
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from paths import SUPPORT
from sglang_double import ANSWER_FAULTS, Model

from srpo.ground.errors import SrpoError
from srpo.ground.files import read_events
from srpo.ground.seeds import derive_seed
from srpo.rollout import sglang_process, sglang_server
from srpo.rollout.interface import Completion, SamplingParams
from srpo.rollout.sglang_protocol import (
    ServerOptions,
    nucleus_floor,
    read_completion,
    server_arguments,
    server_environment,
)
from srpo.rollout.sglang_server import SGLangServer

pytestmark = pytest.mark.fault

DOUBLE = SUPPORT / "sglang_double.py"
PARAMS = SamplingParams(temperature=0.6, max_new_tokens=8, top_p=0.95)
PROMPTS = [[5], [7, 8, 9], [5, 6], [11, 12]]
SEEDS = [[derive_seed("test", i, j) for j in range(6)] for i in range(4)]
OPTIONS = ServerOptions(context_length=64, concurrency=4, start_timeout=20, request_timeout=20)


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(sglang_server, "BACK_OFF", 0.02)
    monkeypatch.setattr(sglang_process, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(sglang_process, "STOP_SECONDS", 5.0)


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    config = {"vocab_size": 40, "eos_token_id": 1, "max_position_embeddings": 128}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def serve(checkpoint, tmp_path):
    """Make servers of the double with faults; in the end none of their processes may live."""

    def make(*faults: str | float, **options) -> SGLangServer:
        command = [sys.executable, str(DOUBLE), "--journal", str(tmp_path / "journal.jsonl"), *map(str, faults)]
        return SGLangServer(checkpoint, tmp_path / "log.txt", dataclasses.replace(OPTIONS, **options), command)

    yield make
    assert not survivors(tmp_path)


def journal(tmp_path: Path, event: str) -> list[dict]:
    return [entry for entry in read_events(tmp_path / "journal.jsonl") if entry["event"] == event]


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def survivors(tmp_path: Path) -> list[int]:
    return [pid for start in journal(tmp_path, "start") for pid in (start["pid"], start["child"]) if lives(pid)]


def expect(checkpoint: Path, params: SamplingParams = PARAMS) -> list[list[Completion]]:
    model = Model(checkpoint, None)
    groups = []
    for prompt, own in zip(PROMPTS, SEEDS, strict=True):
        drawn = [model.sample(prompt, seed, params.max_new_tokens)[:2] for seed in own]
        groups.append([Completion(ids, lps, "stop" if ids[-1] in model.stops else "length") for ids, lps in drawn])
    return groups


LIMITED = """
import resource, sys
from pathlib import Path
from srpo.rollout.interface import SamplingParams
from srpo.rollout.sglang_protocol import ServerOptions
from srpo.rollout.sglang_server import SGLangServer
checkpoint, log, hard, *command = sys.argv[1:]
options = ServerOptions(context_length=64, concurrency=80, data_parallel=3, start_timeout=20, request_timeout=20)
with SGLangServer(Path(checkpoint), Path(log), options, command) as engine:
    resource.setrlimit(resource.RLIMIT_NOFILE, (160, int(hard)))  # SGLang raises its own
    (group,) = engine.generate([[5]], SamplingParams(0.6, 8, 0.95), [list(range(240))])
assert len(group) == 240
"""


@pytest.mark.parametrize("hard", [160, 1024])
def test_more_requests_than_files_may_be_open(checkpoint, tmp_path, hard):
    """The limit is raised as far as it goes; beyond that fewer requests are in flight."""
    seconds = "1" if hard == 160 else "8"  # a busy machine takes a while to send 240 requests
    journaled = ["--journal", str(tmp_path / "journal.jsonl"), "--answer-seconds", seconds]
    arguments = [str(checkpoint), str(tmp_path / "log.txt"), str(hard), sys.executable, str(DOUBLE), *journaled]
    subprocess.run([sys.executable, "-c", LIMITED, *arguments], check=True, timeout=120)
    most = max(entry["in_flight"] for entry in journal(tmp_path, "generate"))
    assert most <= 160 - sglang_server.OTHER_FILES if hard == 160 else most > 160
    assert not survivors(tmp_path)


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize("faults", [(), ("--trim-stop",)])
def test_samples(serve, checkpoint, tmp_path, faults):
    with serve(*faults) as engine:
        groups = engine.generate(PROMPTS, PARAMS, SEEDS)
    assert groups == expect(checkpoint)
    completions = [completion for group in groups for completion in group]
    for completion in completions:
        assert len(completion.token_ids) == len(completion.log_probs)
        assert (completion.finish_reason == "stop") == (completion.token_ids[-1] == 1)
        assert completion.finish_reason == "stop" or len(completion.token_ids) == PARAMS.max_new_tokens
    assert {completion.finish_reason for completion in completions} == {"stop", "length"}

    bodies = [entry["body"] for entry in journal(tmp_path, "generate")]
    assert sorted(body["sampling_params"]["sampling_seed"] for body in bodies) == sorted(
        seed for own in SEEDS for seed in own
    )
    assert bodies[0]["sampling_params"].pop("stop_token_ids") == []
    assert bodies[0]["sampling_params"].keys() == {"temperature", "top_p", "max_new_tokens", "sampling_seed"}


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_token_outside_of_the_nucleus_is_drawn_anew(serve, checkpoint, tmp_path, concurrency):
    """Everything before it is kept; the rest is what the model draws after that, under the next seed."""
    wrong = 40
    model = Model(checkpoint, None, wrong)
    floor = nucleus_floor(PARAMS.top_p, model.vocabulary)

    def sample(prompt, seed):
        tokens, log_probs = [], []
        for redraw in range(100):
            left = PARAMS.max_new_tokens - len(tokens)
            new, theirs, _ = model.sample([*prompt, *tokens], seed ^ redraw, left)
            bad = [i for i, log_prob in enumerate(theirs) if log_prob < -20]
            tokens, log_probs = tokens + new[: (bad or [left])[0]], log_probs + theirs[: (bad or [left])[0]]
            if not bad:
                return Completion(tokens, log_probs, "stop" if tokens[-1] == 1 else "length"), redraw
        raise AssertionError

    with serve("--wrong", wrong, concurrency=concurrency) as engine:
        groups = engine.generate(PROMPTS, PARAMS, SEEDS)
    expected = [[sample(prompt, seed) for seed in own] for prompt, own in zip(PROMPTS, SEEDS, strict=True)]
    assert groups == [[completion for completion, _ in own] for own in expected]
    redraws = [redraw for own in expected for _, redraw in own]
    assert 0 in redraws
    assert max(redraws) > 1
    assert len(journal(tmp_path, "generate")) == len(redraws) + sum(redraws)
    assert min(min(completion.log_probs) for own in groups for completion in own) > floor


@pytest.mark.parametrize("top_p", [0.5, 0.95, 0.99])
def test_no_token_of_a_nucleus_lies_below_its_floor(top_p):
    """Also for the flattest distributions, where the floor is close."""
    generator = random.Random(0)
    for vocabulary in (2, 40, 1000):
        for sharpness in (0.0, 1e-6, 0.1, 1.0, 10.0):
            weights = [math.exp(sharpness * generator.gauss(0, 1)) for _ in range(vocabulary)]
            probs = sorted((weight / math.fsum(weights) for weight in weights), reverse=True)
            mass = 0.0
            for prob in probs:
                if mass >= top_p:
                    break
                mass += prob
                assert math.log(prob) > nucleus_floor(top_p, vocabulary)
    assert nucleus_floor(1.0, 40) == -math.inf


def test_a_stop_token_in_the_last_place_is_a_stop(serve, checkpoint):
    only_one = SamplingParams(1.0, 1)
    model = Model(checkpoint, None)
    seeds = list(range(60))
    with serve() as engine:
        (group,) = engine.generate([[5]], only_one, [seeds])
    drawn = [model.draw([5], seed, 0)[0] for seed in seeds]
    assert 1 in drawn
    assert [completion.finish_reason for completion in group] == ["stop" if token == 1 else "length" for token in drawn]


def test_samples_do_not_depend_on_concurrency_or_company(serve, checkpoint, tmp_path):
    with serve("--answer-seconds", 0.3, concurrency=7) as engine:
        assert engine.generate(PROMPTS, PARAMS, SEEDS) == expect(checkpoint)
        assert engine.generate(PROMPTS[2:3], PARAMS, [SEEDS[2][3:4]]) == [[expect(checkpoint)[2][3]]]
    assert max(entry["in_flight"] for entry in journal(tmp_path, "generate")) == 7
    with serve(concurrency=1) as engine:
        assert engine.generate(PROMPTS, PARAMS, SEEDS) == expect(checkpoint)


def test_further_stop_tokens(serve, checkpoint):
    (checkpoint / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    with serve() as engine:
        groups = engine.generate(PROMPTS, PARAMS, SEEDS)
    assert groups == expect(checkpoint)
    stopped = [completion for group in groups for completion in group if completion.finish_reason == "stop"]
    assert {completion.token_ids[-1] for completion in stopped} == {1, 2}


def test_the_context_holds_the_longest_prompt_and_response(serve, checkpoint):
    (checkpoint / "config.json").write_text('{"vocab_size": 1000000, "eos_token_id": 1, "max_position_embeddings": 72}')
    params = SamplingParams(1.0, 4)
    with serve() as engine:
        (group,) = engine.generate([[5] * 60], params, [list(range(20))])
        assert {len(completion.token_ids) for completion in group} >= {4}
        (last,) = engine.generate([[5] * 63], SamplingParams(1.0, 1), [[1]])
        assert len(last[0].token_ids) == 1
        with pytest.raises(SrpoError, match=r"prompt of 61 tokens \+ max_new_tokens = 4 exceed .* context_length = 64"):
            engine.generate([[5] * 61], params, [[1]])


# ---------------------------------------------------------------- faults of requests


@pytest.mark.parametrize("fault", ANSWER_FAULTS)
def test_a_faulty_answer_is_asked_for_again(serve, checkpoint, tmp_path, fault):
    with serve("--fault", fault, "--times", 3, request_timeout=1 if fault == "hang" else 20) as engine:
        assert engine.generate(PROMPTS, PARAMS, SEEDS) == expect(checkpoint)
    assert len(journal(tmp_path, "generate")) == 24 + 3


def test_a_failure_ends_the_other_requests(serve, tmp_path):
    with serve("--fault", "hang", "--times", 2, concurrency=2) as engine:
        engine.options = dataclasses.replace(engine.options, context_length=1000)
        with pytest.raises(SrpoError, match="status 400"):
            engine.generate([[5], [5] * 200], PARAMS, [[1], [1]])
    assert len(journal(tmp_path, "generate")) == 2  # the hanging one was not waited for and asked again


@pytest.mark.parametrize("prompt", [[6, 40], [6, -1], []])
def test_tokens_outside_the_vocabulary_never_reach_the_server(serve, tmp_path, prompt):
    """SGLang 0.5.12 takes some silently and ends at others."""
    with serve() as engine:
        with pytest.raises(SrpoError, match=r"^prompt 1 has no tokens, or others than the 40 of the"):
            engine.generate([[5], prompt], PARAMS, [[1], [1]])
        assert not journal(tmp_path, "generate")
        assert len(engine.generate([[39]], PARAMS, [[1]])) == 1


# ---------------------------------------------------------------- faults of the server


@pytest.mark.parametrize("faults", [("--die-after", 9, "--stubborn"), ("--die-after", 0)])
def test_a_server_that_dies_ends_the_evaluation_in_one_line(serve, tmp_path, monkeypatch, faults):
    monkeypatch.setattr(sglang_process, "STOP_SECONDS", 0.3)  # a stubborn server's child outlives it and SIGTERM
    said = r"sglang server: ended with status 13; .*log.txt ends: .*scheduler has died"
    with serve(*faults) as engine, pytest.raises(SrpoError, match=said) as error:
        engine.generate(PROMPTS, PARAMS, SEEDS)
    assert "\n" not in str(error.value)
    with serve() as engine:
        assert engine.generate(PROMPTS, PARAMS, SEEDS) == expect(engine._checkpoint)


def test_a_scheduler_that_dies_beside_a_living_server(serve, tmp_path):
    """As SGLang with data parallelism: requests to the dead scheduler are never answered."""
    with serve("--fault", "hang", "--times", 1) as engine:
        (start,) = journal(tmp_path, "start")
        threading.Timer(0.5, os.kill, (start["child"], signal.SIGKILL)).start()
        with pytest.raises(SrpoError, match=r"its process \d+ \(.*\) has died; "):
            engine.generate(PROMPTS, PARAMS, SEEDS)


@pytest.mark.parametrize(
    ("faults", "options", "line"),
    [
        (["--start-seconds", 3600], {"start_timeout": 1}, r"not healthy after start_timeout = 1 s; .*log.txt"),
        (["--dies-at-start"], {}, r"ended with status 1 .*log.txt ends: .*\| torch.OutOfMemoryError: CUDA"),
        (["--served", "/another/model"], {}, "is a server of /another/model by now"),
    ],
)
def test_a_server_that_does_not_start_says_why(serve, faults, options, line):
    with pytest.raises(SrpoError, match=line), serve(*faults, **options):
        pass


def test_a_port_with_a_silent_listener_is_one_line(serve, monkeypatch):
    free = sglang_process.free_port()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setattr(sglang_process, "free_port", lambda: port)
        with pytest.raises(SrpoError, match=rf"another program took its port {port}; start again"), serve():
            pass
        ports = iter([port, port, free])
        monkeypatch.setattr(sglang_process, "free_port", lambda: next(ports))
        with serve() as engine:  # on the third port
            assert engine.generate(PROMPTS, PARAMS, SEEDS) == expect(engine._checkpoint)


# ---------------------------------------------------------------- what is left behind


OWNER = """
import signal, sys
from pathlib import Path
from srpo.rollout.interface import SamplingParams
from srpo.rollout.sglang_protocol import ServerOptions
from srpo.rollout.sglang_server import SGLangServer
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where the tests are a shell's background job
checkpoint, log, *command = sys.argv[1:]
with SGLangServer(Path(checkpoint), Path(log), ServerOptions(context_length=64), command) as engine:
    engine.generate([[5]], SamplingParams(1.0, 8), [[1, 2, 3]])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_server_outlives_its_owner(serve, checkpoint, tmp_path, number):
    command = [sys.executable, str(DOUBLE), "--journal", str(tmp_path / "journal.jsonl"), "--fault", "hang"]
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(checkpoint), str(tmp_path / "log.txt"), *command], stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: len(journal(tmp_path, "generate")) == 3)
        owner.send_signal(number)
        owner.wait(20)
    finally:
        owner.kill()
        owner.wait()
    wait_for(lambda: not survivors(tmp_path))


def wait_for(condition, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_only_loopback_is_bound(serve, tmp_path):
    with serve():
        *_, start = journal(tmp_path, "start")  # a port that was taken in between is tried again
        connections = [
            connection for pid in (start["pid"], start["child"]) for connection in psutil.Process(pid).net_connections()
        ]
    assert [connection.laddr.ip for connection in connections if connection.status == "LISTEN"] == ["127.0.0.1"]


# ---------------------------------------------------------------- the protocol


def test_arguments(serve, checkpoint, tmp_path):
    options = ServerOptions(context_length=10240, tensor_parallel=2, data_parallel=4, dtype="float16")
    arguments = server_arguments(Path("/checkpoint"), 31000, options)
    assert " ".join(arguments) == (
        "--model-path /checkpoint --host 127.0.0.1 --port 31000 --context-length 10248 --tp-size 2 --dp-size 4"
        " --mem-fraction-static 0.8 --dtype float16 --attention-backend flashinfer --cuda-graph-max-bs 256"
        " --skip-tokenizer-init --enable-deterministic-inference"
    )
    with serve(deterministic=False) as engine:
        assert engine.generate(PROMPTS, PARAMS, SEEDS) != engine.generate(PROMPTS, PARAMS, SEEDS)
    assert "--enable-deterministic-inference" not in journal(tmp_path, "start")[0]["arguments"]


def test_environment(serve, tmp_path, monkeypatch):
    programs = str(Path(sys.executable).parent)  # ninja is there, active environment or not
    assert server_environment({})["PATH"] == programs
    assert server_environment({"NO_PROXY": "lab", "A": "b", "PATH": "/bin"}) == {
        "NO_PROXY": "lab",
        "A": "b",
        "PATH": f"/bin:{programs}",
        "no_proxy": "lab,127.0.0.1",
        "SGLANG_GRPC_PORT": "50051",
    }
    monkeypatch.setenv("SGLANG_RETURN_ORIGINAL_LOGPROB", "1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with serve() as engine:
        engine.generate([[5]], PARAMS, [[1]])
    environment = journal(tmp_path, "start")[0]["environment"]
    assert environment["no_proxy"] == "127.0.0.1"
    assert "SGLANG_RETURN_ORIGINAL_LOGPROB" not in environment


def answer(token_ids: list[int], finish: dict | None, output_ids: list[int] | None = None, log_prob=-0.5) -> dict:
    meta = {"finish_reason": finish, "output_token_logprobs": [[log_prob, token, None] for token in token_ids]}
    return {"output_ids": token_ids if output_ids is None else output_ids, "meta_info": meta}


STOP, LENGTH = {"type": "stop", "matched": 1}, {"type": "length", "length": 3}


def test_whole_answers():
    assert read_completion(answer([4, 1], STOP), 3, {1}) == Completion([4, 1], [-0.5, -0.5], "stop")
    assert read_completion(answer([4, 1], STOP, [4]), 3, {1}) == Completion([4, 1], [-0.5, -0.5], "stop")
    assert read_completion(answer([4, 1, 4], LENGTH), 3, {1}).finish_reason == "length"
    assert read_completion(answer([4, 4, 1], LENGTH), 3, {1}).finish_reason == "stop"


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({}, "not an answer"),
        (answer([4], None), "not an answer"),
        ({"output_ids": [4], "meta_info": {"finish_reason": STOP, "output_token_logprobs": None}}, "not an answer"),
        (answer([4, 1], {"type": "abort", "message": "Aborted"}), "Aborted"),
        (answer([4], STOP), "the last token is 4"),
        (answer([4, 1], {"type": "stop", "matched": "NaN happened"}), "NaN happened"),
        (answer([4, 4], LENGTH), "after 2 of 3"),
        (answer([4, 4, 4, 4], LENGTH), "after 4 of 3"),
        (answer([4, 4, 4], LENGTH, [4, 4]), "2 tokens, but log-probs of 3"),
        (answer([4, 1], STOP, log_prob=None), "not finite"),
        (answer([4, 1], STOP, log_prob=float("nan")), "not finite"),
    ],
)
def test_answers_that_are_no_sample(wrong, line):
    with pytest.raises(ValueError, match=line):
        read_completion(wrong, 3, {1})
