"""A double of SGLang's HTTP server (0.5.12): the fields that ``srpo.rollout.sglang_server`` uses, and faults.

``tests/real_sglang`` shows that SGLang itself behaves like this where the tests of the adapter rely on it.
``python tests/support/sglang_double.py --model-path FOLDER --port PORT ...`` takes SGLang's arguments and, before
them, those of a fault. It reads sizes and end-of-sequence tokens from the checkpoint and invents tokens as
a function of (prompt, seed, position). Standard library only: it has to start quickly.
"""

import argparse
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SAMPLING_PARAMS = {"temperature": float, "top_p": float} | {
    **{"max_new_tokens": int, "sampling_seed": int, "stop_token_ids": list}
}
FIELDS = {"input_ids", "sampling_params", "return_logprob"}

ANSWER_FAULTS = (
    "error",  # status 500
    "drop",  # connection closed without an answer
    "cut",  # connection closed in the middle of the answer
    "garble",  # half of the JSON
    "abort",  # a whole answer that is no sample; other such answers: test_answers_that_are_no_sample
    "hang",
)


class BadRequest(Exception):
    """Answered with status 400 and this message."""


# ---------------------------------------------------------------- the model


class Model:
    """Invents tokens; one in eight ends the response."""

    def __init__(self, folder: Path, context_length: int | None, wrong: int = 0) -> None:
        self.wrong = wrong  # of 256 tokens, as deterministic sampling of 0.5.12 has them in 28,000
        config = json.loads((folder / "config.json").read_text())
        self.vocabulary = config["vocab_size"]
        self.stops = [config["eos_token_id"]]
        with contextlib.suppress(FileNotFoundError):
            self.stops += json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
        positions = config["max_position_embeddings"]
        self.context = context_length or positions
        if self.context > positions:
            raise ValueError(
                f"context_length ({self.context}) is greater than the derived context_length ({positions})"
            )

    def draw(self, prompt: list[int], seed: int, position: int) -> tuple[int, float]:
        """A token and its log-prob."""
        digest = hashlib.md5(repr((prompt, seed, position)).encode()).digest()
        word = int.from_bytes(digest[:8], "big")
        if digest[10] < self.wrong:
            return word % self.vocabulary, -60.0 + digest[11] / 8
        token = self.stops[word % len(self.stops)] if digest[8] < 32 else word % self.vocabulary
        return token, -(digest[9] + 1) / 64

    def sample(self, prompt: list[int], seed: int, limit: int) -> tuple[list[int], list[float], dict[str, Any]]:
        """Tokens, log-probs and finish reason; like SGLang, the length is looked at before the stop token."""
        tokens: list[int] = []
        log_probs: list[float] = []
        while True:
            token, log_prob = self.draw(prompt, seed, len(tokens))
            tokens.append(token)
            log_probs.append(log_prob)
            if len(tokens) >= limit:
                return tokens, log_probs, {"type": "length", "length": limit}
            if token in self.stops:
                return tokens, log_probs, {"type": "stop", "matched": token}


# ---------------------------------------------------------------- the server


class Double:
    """State of the server; its methods run in the request's thread."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.model = Model(Path(options.model_path), options.context_length, options.wrong)
        self.ready_at = time.monotonic() + options.start_seconds
        self.lock = threading.Lock()
        self.requests = self.in_flight = 0

    def note(self, event: str, **details: Any) -> None:
        """Append to the journal, which outlives the server."""
        if self.options.journal:
            with self.lock, self.options.journal.open("a") as journal:
                journal.write(json.dumps({"event": event, **details}) + "\n")

    def generate(self, body: Any) -> tuple[int, bytes, str | None]:
        """Status, body and fault of the answer."""
        with self.lock:
            self.requests += 1
            number = self.requests
            self.in_flight += 1
            in_flight = self.in_flight
        try:
            self.note("generate", body=body, in_flight=in_flight)
            if number > self.options.die_after:
                print("the scheduler has died", flush=True)
                os._exit(13)
            time.sleep(self.options.answer_seconds)
            fault = self.options.fault if number <= self.options.times else None
            if fault == "error":
                return 500, b"Internal Server Error", None
            try:
                answer = self.answer(body, fault)
            except BadRequest as error:
                return 400, json.dumps({"error": {"message": str(error)}}).encode(), None
            except TypeError:  # SGLang's answer to a sampling parameter that it does not know
                return 500, b"Internal Server Error", None
            if fault == "hang":  # a request refused above is refused at once
                time.sleep(3600)
            return 200, json.dumps(answer).encode(), fault
        finally:
            with self.lock:
                self.in_flight -= 1

    def answer(self, body: Any, fault: str | None) -> Any:
        prompt, limit, seed = self.validate(body)
        if not self.options.enable_deterministic_inference:
            seed = int.from_bytes(os.urandom(8), "big")
        tokens, log_probs, finish = self.model.sample(prompt, seed, limit)
        if fault == "abort":
            finish = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
        entries = [[log_prob, token, None] for token, log_prob in zip(tokens, log_probs, strict=True)]
        if self.options.trim_stop and finish["type"] == "stop":
            tokens = tokens[:-1]
        meta = {
            "id": os.urandom(16).hex(),
            "finish_reason": finish,
            "prompt_tokens": len(prompt),
            "completion_tokens": len(tokens),
            "cached_tokens": 0,
            "input_token_logprobs": [],
            "output_token_logprobs": entries,
        }
        return {"output_ids": tokens, "meta_info": meta if body["return_logprob"] else {**meta, **NO_LOG_PROBS}}

    def validate(self, body: Any) -> tuple[list[int], int, int]:
        """Prompt, length limit and seed of a request. Stricter than SGLang, which ignores unknown fields.

        Raises:
            BadRequest: as SGLang's.
            TypeError: on an unknown sampling parameter.
        """
        if not isinstance(body, dict) or set(body) - FIELDS:
            raise BadRequest(f"unknown fields: {sorted(set(body) - FIELDS)}")
        prompt, params = body.get("input_ids"), body.get("sampling_params", {})
        if not (isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt)):
            raise BadRequest("input_ids: a list of integers is needed")
        # 0.5.12 does not look at the ids: its embedding has rows up to a multiple of 64, beyond them a lookup fails
        if not all(0 <= token < -(-self.model.vocabulary // 64) * 64 for token in prompt):
            print("IndexError: index out of range in self", flush=True)
            kill_own_group()
        for name, value in params.items():
            if name not in SAMPLING_PARAMS:
                raise TypeError(name)
            if type(value) not in (int, SAMPLING_PARAMS[name]):
                raise BadRequest(f"{name}: {value!r} is of another type")
        if not 0 < params.get("top_p", 1.0) <= 1:
            raise BadRequest(f"top_p must be in (0, 1], got {params['top_p']}.")
        if params.get("temperature", 1.0) < 0:
            raise BadRequest(f"temperature must be non-negative, got {params['temperature']}.")
        seed = params.get("sampling_seed", 42)
        if not -(2**63) <= seed < 2**63:
            print("ValueError: Overflow when unpacking long long", flush=True)
            kill_own_group()
        limit, context = params.get("max_new_tokens", 128), self.model.context
        if len(prompt) >= context:
            raise BadRequest(f"The input ({len(prompt)} tokens) is longer than the context length ({context} tokens).")
        if len(prompt) + limit > context:
            raise BadRequest(f"Requested token count exceeds the model's maximum context length of {context} tokens.")
        if len(prompt) >= context - 6:
            raise BadRequest(f"Input length ({len(prompt)} tokens) exceeds the maximum allowed length.")
        return prompt, min(limit, context - 2 - len(prompt)), seed


NO_LOG_PROBS = {"input_token_logprobs": None, "output_token_logprobs": None}


def handler(double: Double) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path in ("/health", "/health_generate"):
                self.reply(200 if time.monotonic() >= double.ready_at else 503)
            elif self.path == "/model_info":
                served = double.options.served or double.options.model_path
                self.reply(200, json.dumps({"model_path": served, "is_generation": True}).encode())
            else:
                self.reply(404)

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != "/generate":
                self.reply(404)
                return
            try:
                body = json.loads(content)
            except ValueError:
                self.reply(400)
                return
            status, answer, fault = double.generate(body)
            if fault == "garble":
                answer = answer[: len(answer) // 2]
            if fault == "drop":
                self.close_connection = True
            else:
                self.reply(status, answer, len(answer) // 2 if fault == "cut" else None)

        def reply(self, status: int, content: bytes = b"", sent: int | None = None) -> None:
            self.close_connection = True
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content[:sent])

        def handle_one_request(self) -> None:
            with contextlib.suppress(ConnectionError):  # the client is gone
                super().handle_one_request()

    return Handler


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512


def kill_own_group() -> None:
    """What SGLang does after a scheduler's error."""
    print("Received sigquit from a child process. It usually means the child failed.", flush=True)
    os.killpg(0, signal.SIGKILL)


def spawn_child(stubborn: bool) -> subprocess.Popen[bytes]:
    """The scheduler's stand-in, named as SGLang's; like that one it dies with its parent, unless it is stubborn."""
    bind = "" if stubborn else "libc.prctl(1, 9); "
    program = f"import ctypes, time; libc = ctypes.CDLL(None); {bind}libc.prctl(15, b'sglang::schedul'); "
    child = subprocess.Popen([sys.executable, "-ISc", program + "time.sleep(3600)"])
    while Path(f"/proc/{child.pid}/comm").read_text().strip() != "sglang::schedul":
        time.sleep(0.01)
    return child


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--context-length", type=int)
    parser.add_argument("--tp-size", type=int, default=1)
    parser.add_argument("--dp-size", type=int, default=1)
    parser.add_argument("--mem-fraction-static", type=float)
    parser.add_argument("--dtype", choices=("auto", "half", "float16", "bfloat16", "float", "float32"), default="auto")
    parser.add_argument("--attention-backend", choices=("fa3", "flashinfer", "triton"))
    parser.add_argument("--cuda-graph-max-bs", type=int)
    parser.add_argument("--skip-tokenizer-init", action="store_true")
    parser.add_argument("--enable-deterministic-inference", action="store_true")
    ours = parser.add_argument_group("not SGLang's")
    ours.add_argument("--journal", type=Path, help="file to write starts and requests to")
    ours.add_argument("--fault", choices=ANSWER_FAULTS)
    ours.add_argument("--times", type=int, default=2**63, help="the first requests that have the fault")
    ours.add_argument("--die-after", type=int, default=2**63, help="requests answered before the server dies")
    ours.add_argument("--dies-at-start", action="store_true")
    ours.add_argument("--start-seconds", type=float, default=0.0, help="until it is healthy")
    ours.add_argument("--answer-seconds", type=float, default=0.0)
    ours.add_argument("--stubborn", action="store_true", help="it and its child ignore SIGTERM")
    ours.add_argument("--trim-stop", action="store_true", help="leave the stop token out of output_ids")
    ours.add_argument("--wrong", type=int, default=0, help="of 256 tokens, those that are outside of the nucleus")
    ours.add_argument("--served", help="model path to claim")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> None:
    options = parse(arguments)
    if options.dies_at_start:
        sys.exit("Traceback (most recent call last):\n  ...\ntorch.OutOfMemoryError: CUDA out of memory.")
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the child inherits it
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    double = Double(options)
    child = spawn_child(options.stubborn)
    double.note("start", pid=os.getpid(), child=child.pid, arguments=arguments, environment=dict(os.environ))
    try:
        server = Server((options.host, options.port), handler(double))
    except OSError as error:  # SGLang logs it and does not end
        print(f"ERROR: [Errno {error.errno}] error while attempting to bind on address", flush=True)
        time.sleep(3600)
        raise
    with server:
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
