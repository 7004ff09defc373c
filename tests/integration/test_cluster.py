"""The Ray driver on CPUs and gloo (verl's trainer, FSDP2 workers, servers) against the driver in one process.

test_ranks.py has all methods on two ranks, without a cluster's start for each.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import ray
import torch
from cluster_driver import experiment
from paths import SUPPORT
from run_content import assert_same, content
from safetensors.torch import load_file
from secret import SECRET, VARIABLES, files_with_the_secret
from tiny import hash_reward, prepare

from srpo.ground.files import read_events
from srpo.ground.layout import WEIGHTS
from srpo.policy import in_process, ray_driver
from srpo.policy.servers import ServerRollout
from srpo.training import avg_at_k, checkpoints, loop

WALL = ("wall_seconds", "host_memory_gb")

pytestmark = [pytest.mark.fault, pytest.mark.slow]


@pytest.fixture(autouse=True, scope="module")
def _rewards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("srpo.training.step.compute_reward", hash_reward)
        patch.setattr(avg_at_k, "compute_reward", hash_reward)
        yield


@pytest.fixture(scope="module")
def alone(_rewards, tmp_path_factory) -> Path:
    """The folder of the run by the driver in one process, made once; tests read it."""
    return trained(experiment(0), tmp_path_factory.mktemp("alone"))


def trained(experiment, folder: Path) -> Path:
    """Train and return the run's folder."""
    spec, layout = prepare(experiment, folder)
    loop.train(spec, layout)
    return layout.run(spec.id)


def events(run: Path, log: str) -> list[dict]:
    return [{k: v for k, v in event.items() if k not in WALL} for event in read_events(run / log)]


def final_weights(run: Path) -> dict[str, torch.Tensor]:
    folder, _ = checkpoints.newest(run)
    return load_file(folder / WEIGHTS / "model.safetensors")


def assert_same_run(run: Path, expected: Path, exactly: bool) -> None:
    """Equal logs and weights; if not exactly, up to the order of summation over ranks."""
    for log in ("steps.jsonl", "validations.jsonl", "groups.jsonl"):
        found, wanted = events(run, log), events(expected, log)
        assert len(found) == len(wanted) > 0
        for event, reference in zip(found, wanted, strict=True):
            metrics, reference_metrics = event.pop("metrics", {}), reference.pop("metrics", {})
            assert event == reference
            tolerance = {"rel": 0, "abs": 0} if exactly else {"rel": 1e-5, "abs": 1e-7}
            # differences of log-probs are themselves rounding: they depend on the processor's order of summation
            rounding = {name for name in metrics if name.startswith("rollout_corr/log_prob") and not exactly}
            for name in rounding:
                assert metrics.pop(name) == pytest.approx(reference_metrics.pop(name), abs=1e-6)
            assert metrics == pytest.approx(reference_metrics, **tolerance)
    ours, theirs = final_weights(run), final_weights(expected)
    assert ours.keys() == theirs.keys()
    for name, weight in ours.items():
        if exactly:
            assert torch.equal(weight, theirs[name]), name
        else:
            assert (weight - theirs[name]).norm() <= 1e-5 * theirs[name].norm(), name


def test_servers_find_the_cuda_runtime_that_torch_brings(monkeypatch, tmp_path):
    """Of every CUDA version there is, before what the user's own path names."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    without = ray_driver.loader_path()
    for folder, library in (("cu13", "libcudart.so.13"), ("cublas", "libcublas.so.13")):
        (tmp_path / "nvidia" / folder / "lib").mkdir(parents=True)
        (tmp_path / "nvidia" / folder / "lib" / library).touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    ours = str(tmp_path / "nvidia" / "cu13" / "lib")
    assert set(ray_driver.loader_path()["LD_LIBRARY_PATH"].split(":")) == {*filter(None, without.values()), ours}
    monkeypatch.setenv("LD_LIBRARY_PATH", "/site")
    assert ray_driver.loader_path()["LD_LIBRARY_PATH"].split(":")[-1] == "/site"


@pytest.fixture
def short():
    """A folder whose path is short enough for Ray's sockets."""
    folder = Path(tempfile.mkdtemp(prefix="srpo"))
    yield folder
    shutil.rmtree(folder)


def test_a_run_goes_on_without_a_server_that_dies(alone, tmp_path, monkeypatch, caplog):
    """It is killed in the middle of a batch, after the checkpoint of step 2. The samples come out the same."""
    spec, layout = prepare(experiment(2), tmp_path / "ray")
    generate, batches, updates = ServerRollout._generate, [], []

    async def generate_and_kill(self, *args):
        batches.append(len(updates))
        if batches[-2:] != [2, 3]:  # of step 4
            return await generate(self, *args)
        server = ray.get_actor("embedded_server_1")
        process = await server.__ray_call__.remote(lambda _: os.getpid())
        os.kill(process, signal.SIGSTOP)  # so that it has not answered when it dies
        asking = asyncio.ensure_future(generate(self, *args))
        await asyncio.sleep(1)
        assert not asking.done()
        os.kill(process, signal.SIGKILL)
        return await asking

    update = ray_driver.RayPolicy.update_actor
    monkeypatch.setattr(ray_driver.RayPolicy, "update_actor", lambda *args: updates.append(1) or update(*args))
    monkeypatch.setattr(ServerRollout, "_generate", generate_and_kill)
    loop.train(spec, layout)
    assert "rollout servers failed after step 3, starting new ones (generating: ActorDiedError" in caplog.text
    assert batches == [0, 0, 1, 2, 2, 3, 3, 3, 4]  # of warm-ups, validations, and steps: step 4 twice, none taken twice
    assert_same_run(layout.run(spec.id), alone, exactly=False)


def test_a_run_whose_driver_or_worker_dies_leaves_nothing_behind_and_goes_on(alone, tmp_path, short, monkeypatch):
    """The driver dies after the fourth event's checkpoint, then a worker: weights are lost, nothing starts anew.

    Then new workers load and save what the other driver has saved, as that does in the end. Ray's files have no secret.
    """
    for name, value in {"RAY_TMPDIR": str(short), **dict.fromkeys(VARIABLES, SECRET)}.items():
        monkeypatch.setenv(name, value)
    spec, layout = prepare(experiment(1), tmp_path / "ray")
    command = [sys.executable, SUPPORT / "cluster_driver.py", layout.folder, "1", "5", "SIGKILL"]
    killed = psutil.Popen(command, start_new_session=True)
    family = {}
    while killed.poll() is None:
        with contextlib.suppress(psutil.NoSuchProcess):
            family |= {process: process.name() for process in killed.children(recursive=True)}
        time.sleep(0.2)
    assert killed.returncode == -signal.SIGKILL
    assert len(family) > 5
    assert checkpoints.newest(layout.run(spec.id))[1]["step"] == 2
    assert not (layout.run(spec.id) / "summary.json").exists()
    # Ray's own agents look for their parent once a minute; they hold no device and no lock
    compute = [process for process, name in family.items() if not name.endswith("Agent")]
    assert psutil.wait_procs(compute, timeout=60)[1] == []

    update, start = ray_driver.RayPolicy.update_actor, loop._start_policy
    (saved, _), base = checkpoints.newest(alone), layout.model(spec.id.model)

    def kill_and_update(self, batch):
        (worker,) = self.actor_rollout_wg.workers
        os.kill(ray.get(worker.__ray_call__.remote(lambda _: os.getpid())), signal.SIGKILL)
        return update(self, batch)

    @contextlib.contextmanager
    def start_and_exchange(*args):
        with start(*args) as policy:
            policy.load_checkpoint(saved)
            policy.save_checkpoint(tmp_path / "complete", 4)
            policy.save_weights(tmp_path / "weights")
            yield policy

    with monkeypatch.context() as patch:
        patch.setattr(ray_driver.RayPolicy, "update_actor", kill_and_update)
        with pytest.raises(ray.exceptions.RayActorError):
            loop.train(spec, layout)
    assert checkpoints.newest(layout.run(spec.id))[1]["step"] == 2
    monkeypatch.setattr(loop, "_start_policy", start_and_exchange)
    loop.train(spec, layout)
    assert any(short.rglob("*.log"))
    assert files_with_the_secret(tmp_path, short) == []
    assert_same_run(layout.run(spec.id), alone, exactly=True)

    for folder in ("complete", "weights"):
        for path in (saved / WEIGHTS).iterdir():
            assert path.read_bytes() == (tmp_path / folder / WEIGHTS / path.name).read_bytes()
    assert_same_tensors(saved, tmp_path / "complete")
    with in_process.start(experiment(0).run(spec.id), base) as policy:
        policy.load_checkpoint(checkpoints.newest(layout.run(spec.id))[0])
        policy.save_checkpoint(tmp_path / "local", 4)
    assert_same_tensors(saved, tmp_path / "local")


def assert_same_tensors(folder: Path, other: Path) -> None:
    found, expected = (
        {name: value for name, value in content(each).items() if name.endswith(".pt")} for each in (other, folder)
    )
    assert len(expected) >= 3
    assert_same(found, expected)
