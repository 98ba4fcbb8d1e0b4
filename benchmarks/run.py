"""Measures allreduce, gradient sets and training beside the peers: run.py [KIND…]; see docs/performance.md.

    engine    the engine alone in C++, against MPI and Gloo in C++
    graph     the op in a tf.function, against Horovod, MultiWorkerMirroredStrategy and torch
    eager     the op in eager mode
    torch     the backend smddp of torch.distributed, against Gloo; `make bench-peers` installs both
    sets      the gradients of ResNet50 and BERT-base in one step
    hosts     the engine and the op on several hosts (network namespaces of this machine; needs root)
    order     the order of requests between up to 2,048 made-up hosts: the time and the bytes at their head
    training  a step with the plugin loaded, against stock TensorFlow; no communication
    scaling   one rank with one thread against N ranks with one thread each
    whole     training with all cores: one process, tf_smddp, Horovod, MultiWorkerMirroredStrategy, torch with
              DistributedDataParallel over Gloo and over the engine, and with that of torch_smddp
    whole-busy   likewise beside a process that keeps a core busy all the time
    whole-hosts  likewise on two hosts (as in hosts), without the one process and torch

Everything is kept as records in OUTPUT/results.jsonl; report.py makes tables and plots of it.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import pathlib
import subprocess
import sys
from typing import Dict, List

from driver import machine, report
from driver.hosts import LAYOUTS
from driver.rounds import run_suite
from driver.suites import suites
from peers.base import ROOT, implementations
from training import scaling, steps, whole

ALLREDUCE_KINDS = ("engine", "graph", "eager", "sets", "hosts")
WHOLE_KINDS = ("whole", "whole-busy", "whole-hosts")
KINDS = (*ALLREDUCE_KINDS, "torch", "order", "training", "scaling", *WHOLE_KINDS)
NEEDED_BY = {
    "engine": {"engine", "sets", "hosts"},
    "graph": {"graph", "eager", "sets", "hosts", "training", "scaling", *WHOLE_KINDS},
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure tf_smddp beside its peers.")
    parser.add_argument(
        "kind", nargs="*", help=f"what to measure: {', '.join(KINDS)}; default: all but torch"
    )
    parser.add_argument("--rounds", type=int, default=3, help="jobs of each peer in a suite (default: 3)")
    parser.add_argument("--ranks", default="2,4,8", help="numbers of ranks in C++ (default: 2,4,8)")
    parser.add_argument("--python-ranks", default="2", help="numbers of ranks in Python (default: 2)")
    parser.add_argument(
        "--peers",
        help="names of the peers to compare with, separated by commas; default: all installed peers",
    )
    parser.add_argument(
        "--processes", type=int, default=5, help="processes of each kind in training (default: 5)"
    )
    parser.add_argument(
        "--output", type=pathlib.Path, default=ROOT / ".cache" / "bench", help="folder for the results"
    )
    parser.add_argument(
        "--document",
        type=pathlib.Path,
        help="a document in which the results between the markers are replaced",
    )
    parser.add_argument(
        "--variant",
        action="append",
        metavar="NAME:VARIABLE=VALUE,…",
        help="in training: measure the plugin with these variables set; may be repeated (default: tf_smddp)",
    )
    parser.add_argument(
        "--suites",
        default="*",
        help="only suites whose name matches, as hosts-2+2-*-engine or whole-mlp (default: all)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="take few samples, to check that everything works"
    )
    found = parser.parse_args()
    unknown = sorted(set(found.kind) - set(KINDS))
    if unknown:
        parser.error(f"no such kind: {', '.join(unknown)}")
    found.kind = found.kind or [kind for kind in KINDS if kind != "torch"]
    return found


def main() -> int:
    arguments = parse_arguments()
    folder = arguments.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    every = {one.name: one for one in implementations()}
    for name in ("engine", "graph"):  # one for C++, one for the plugin
        if set(arguments.kind) & NEEDED_BY[name]:
            every[name].set_up()
    wanted = arguments.peers.split(",") if arguments.peers is not None else list(every)
    versions = {name: one.version() for name, one in every.items()}
    for name, one in every.items():
        print(f"{one.title:30} {versions[name] or 'not installed'}", flush=True)
    about: Dict = {"about": machine.describe(), "versions": {every[n].title: v for n, v in versions.items()}}
    records: List[Dict] = [about]

    def progress(text: str) -> None:
        print(f"  {text}", flush=True)

    ranks, python_ranks = (
        [int(n) for n in text.split(",")] for text in (arguments.ranks, arguments.python_ranks)
    )
    if arguments.quick:
        ranks, python_ranks, arguments.rounds, arguments.processes = ranks[:1], python_ranks[:1], 1, 1
    every_suite = suites(arguments.kind, ranks, python_ranks, arguments.quick)
    chosen = [suite for suite in every_suite if fnmatch.fnmatchcase(suite.name, arguments.suites)]
    whole_names = {
        kind: [f"{kind}-{model}" for model in whole.sizes(arguments.quick)]
        for kind in WHOLE_KINDS
        if kind in arguments.kind
    }
    names = [suite.name for suite in every_suite] + [name for some in whole_names.values() for name in some]
    if names and not any(fnmatch.fnmatchcase(name, arguments.suites) for name in names):
        print(f"no suite matches --suites {arguments.suites}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    for suite in chosen:
        ours = every[suite.ours]
        rivals = [one for one in every.values() if not one.ours and one.level in suite.peer_levels()]
        if suite.layout is not None:
            rivals = [one for one in rivals if one.rank_of_hosts(suite.options, folder / "rank.jsonl")]
        else:
            rivals = [one for one in rivals if one.job(suite.ranks, suite.options, folder / "rank.jsonl")]
        present = [one for one in rivals if versions[one.name] and one.name in wanted]
        records.append(
            {
                "suite": suite.name,
                "suite_title": suite.title,
                "absent": [one.title for one in rivals if not versions[one.name]],
            }
        )
        if not versions[ours.name]:
            records.append({"suite": suite.name, "title": ours.title, "error": "not installed", "ours": True})
            continue
        records += run_suite(suite, ours, present, arguments.rounds, folder, progress)
        print(report.suite_text(records, suite.name), flush=True)
        _write(folder, records)
    if "order" in arguments.kind:
        _measure_order(arguments.quick)
    if "training" in arguments.kind:
        variants = dict(map(steps.parse_variant, arguments.variant or ["tf_smddp"]))
        records += steps.run(folder, arguments.processes, arguments.quick, progress, variants)
        print(steps.text(records), flush=True)
        _write(folder, records)
    if "scaling" in arguments.kind:
        records += scaling.run(folder, arguments.rounds, arguments.quick, progress)
        print(scaling.text(records), flush=True)
        _write(folder, records)
    present = [one for one in every.values() if versions[one.name] and one.name in wanted]
    two_hosts = [layout for layout in LAYOUTS if layout.counts == (1, 1)]
    for kind, names in whole_names.items():
        models = [name[len(kind) + 1 :] for name in names if fnmatch.fnmatchcase(name, arguments.suites)]
        layouts = two_hosts if kind == "whole-hosts" else [None]
        rounds, quick, busy = arguments.rounds, arguments.quick, kind == "whole-busy"
        for layout, model in itertools.product(layouts, models):
            records += whole.run(folder, rounds, quick, progress, present, model, layout, busy)
            _write(folder, records)
    if whole_names:
        print(whole.text(records), flush=True)
    report.write(records, folder, arguments.document)
    broken = [record for record in records if "error" in record and record.get("ours")]
    for record in broken:
        print(f"{record['title']}: {record['error']}; logs are in {folder}", file=sys.stderr)
    return 1 if broken else 0


def _measure_order(quick: bool) -> None:
    bazel = [sys.executable, str(ROOT / "tools" / "run_bazel.py")]
    words = ["run", "--noshow_progress", "--ui_event_filters=-info", "//benchmarks/cpp:order_benchmark"]
    limit = ["--", "--benchmark_min_time=0.001"] if quick else []
    subprocess.run([*bazel, *words, *limit], check=True, cwd=ROOT)


def _write(folder: pathlib.Path, records: List[Dict]) -> None:
    (folder / "results.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


if __name__ == "__main__":
    sys.exit(main())
