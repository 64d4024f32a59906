"""Fingerprints of small runs, for `tests/golden/fingerprints.json`: weights, selections and metrics.

`python -m tests.fingerprints` writes the file, with names of runs only their entries. A
change that moves code must not change it.
"""

import hashlib
import json
import multiprocessing
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from feal.experiment import resume, start
from feal.settings import Settings
from tests.frozen import frozen, write_weights
from tests.people import answer_all, data_of
from tests.runs import tiny, tiny_polyps

GOLDEN = Path(__file__).parent / "golden" / "fingerprints.json"
STRATEGIES = (
    "badge",
    "coreset",
    "entropy",
    "feal",
    "full",
    "gradnorm",
    "kafal",
    "logo",
    "random",
    "strata",
    "tod",
)
VARIANTS: dict[str, dict[str, Any]] = {
    "feal-rule-all": {"strategy": "feal", "strategy.rule": "all", "strategy.tau": 0.5},
    "feal-rule-none": {"strategy": "feal", "strategy.rule": "none"},
    "feal-literal": {"strategy": "feal", "strategy.calibration": "literal"},
    "feal-terms": {"strategy": "feal", "strategy.terms": ["aleatoric-local", "epistemic-global"]},
    "gradnorm-head": {"strategy": "gradnorm", "strategy.scope": "head"},
    "logo-local-only": {"strategy": "logo", "strategy.local": "local_only"},
    "tod-ensemble": {"strategy": "tod", "strategy.query_model": "ensemble"},
    "tod-ensemble-one-epoch": {"strategy": "tod", "strategy.query_model": "ensemble", "strategy.epochs": 1},
    "badge-ensemble-balanced": {"strategy": "badge", "strategy.query_model": "ensemble", "loss": "balanced"},
    "entropy-local-evidential": {
        "strategy": "entropy",
        "strategy.query_model": "local",
        "loss": "evidential",
        "class_count_scope": "global",
        "loss.class_weight": "inverse",
        "loss.activation": "softplus",
    },
    "half-participation": {"participation": 0.5, "quorum": 1, "evaluate_every": 1, "restart": False},
    "transforms": {
        "transforms.flips": True,
        "transforms.rotation": 20,
        "transforms.brightness": 0.2,
        "transforms.contrast": 0.2,
        "transforms.crop": 28,
        "transforms.normalise": "imagenet",
    },
    "validation": {"validation": 0.2},
}
"""What the strategies' defaults do not reach, for classification."""


def machine() -> str:
    """Tell what decides the last bits of a float: processor, its vector instructions, and torch."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()}, {model}, {capability}, torch {torch.__version__.split('+')[0]}"


def cases() -> dict[str, Callable[[Path], Path]]:
    """Every run by its name: a function that makes it in a folder and returns its directory."""
    made: dict[str, Callable[[Path], Path]] = {}
    for strategy in STRATEGIES:
        made[f"{strategy}-classification"] = _plain(lambda strategy=strategy: tiny(strategy=strategy))
        made[f"{strategy}-segmentation"] = _plain(lambda strategy=strategy: _monai_polyps(strategy=strategy))
    for name, changes in VARIANTS.items():
        made[name] = _plain(lambda changes=changes: tiny(**changes))
    made["paper-unet"] = _plain(tiny_polyps)
    made["paper-efficientnet"] = _plain(lambda: tiny(model="efficientnet-b0", rounds=1, strategy="random"))
    made["people-classification"] = _by_people(tiny)
    made["people-segmentation"] = _by_people(_monai_polyps)
    made["frozen-head"] = _frozen("head")
    made["frozen-tail"] = _frozen("tail")
    made["killed-classification"] = _killed(tiny)
    made["killed-segmentation"] = _killed(_monai_polyps)
    return made


def fingerprint(run: Path) -> dict[str, Any]:
    """Reduce a finished run to what must not change, whatever its files and fields are called."""
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rounds = [event for event in events if event["event"] == "round"]
    return {
        "weights": [_weights(path) for path in sorted(run.glob("weights/*.safetensors"))],
        "selections": _selections(run),
        "metrics": [
            {name: [values["pooled"], values["mean"]] for name, values in sorted(event["metrics"].items())}
            for event in rounds
        ],
    }


def _monai_polyps(**changes: Any) -> Settings:
    return tiny_polyps(**{"model": "basic-unet", **changes})


def _plain(settings: Callable[[], Settings]) -> Callable[[Path], Path]:
    return lambda folder: start(settings(), out=folder / "run").folder


def _by_people(settings: Callable[..., Settings]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        asking = settings(annotator="folder")
        result = start(asking, out=folder / "run")
        for _ in range(9):
            if result.status == "finished":
                break
            answer_all(result.folder, data_of(asking))
            result = resume(result.folder)
        return result.folder

    return make


def _frozen(part: str) -> Callable[[Path], Path]:
    return lambda folder: start(frozen(write_weights(folder / "w.safetensors"), part), out=folder / "run").folder


def _killed(settings: Callable[..., Settings]) -> Callable[[Path], Path]:
    """Kill a run without warning after each of its first messages, and resume it."""

    def make(folder: Path) -> Path:
        data_of(settings())  # the data are made before, so that only the run is killed
        out = folder / "run"
        # One process imports everything; each child is a copy of it.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.fingerprints", "monai.networks.nets.basic_unet"])
        for attempt in range(3):
            child = context.Process(target=_run_and_die, args=(settings(), out, 3 + attempt))
            child.start()
            child.join()
            assert child.exitcode == -9, child.exitcode
        return resume(out).folder

    return make


def _run_and_die(settings: Settings, out: Path, messages: int) -> None:
    """Start or resume a run and end this process by SIGKILL when a site has been sent so many messages."""
    import signal

    from feal.federation.site.site import Site

    handle, seen = Site.handle, []

    def counting(self: Site, data: bytes) -> bytes:
        seen.append(1)
        reply = handle(self, data)
        if len(seen) == messages + 2:  # the sites' joining aside
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    Site.handle = counting  # type: ignore[method-assign]
    if (out / "state.json").exists():
        resume(out)
    else:
        shutil.rmtree(out, ignore_errors=True)
        start(settings, out=out)


def _weights(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        tensors = [file.get_tensor(name) for name in file.keys()]  # noqa: SIM118
    digests = sorted(hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest() for tensor in tensors)
    norm = sum(float(tensor.double().square().sum()) for tensor in tensors) ** 0.5
    return {"sha256": hashlib.sha256("".join(digests).encode()).hexdigest(), "norm": norm}


def _selections(run: Path) -> dict[str, list[str]]:
    """Chosen samples in order of preference, by site and round, with the scores they were ranked by."""
    chosen = {}
    for path in sorted(run.glob("sites/*/selections/*.csv")):
        header, *rows = [line.split(",") for line in path.read_text().splitlines()]
        score = header.index("score")
        chosen[f"{path.parents[1].name}/{path.stem}"] = [f"{row[0]} {row[score]}" for row in rows]
    return chosen


def main() -> None:
    """Write the golden file; with names of runs, only their entries."""
    torch.set_num_threads(1)
    prints = json.loads(GOLDEN.read_text())["runs"] if sys.argv[1:] else {}
    for name, make in cases().items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            prints[name] = fingerprint(make(Path(folder)))
        print(name, file=sys.stderr)
    GOLDEN.write_text(json.dumps({"machine": machine(), "runs": prints}, indent=1) + "\n")


if __name__ == "__main__":
    main()
