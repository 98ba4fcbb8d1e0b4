"""Runs a suite in rounds: ours, peer A, ours, peer B, …, each in a new job.

A peer is compared with our run just before it, so a slow change of the machine's speed favours neither. Each
round begins with another peer.
"""

from __future__ import annotations

import pathlib
from typing import Callable, Dict, List, Sequence

from peers.base import Implementation

from driver.jobs import run_job
from driver.suites import Suite

Record = Dict


def run_suite(
    suite: Suite,
    ours: Implementation,
    peers: Sequence[Implementation],
    rounds: int,
    folder: pathlib.Path,
    progress: Callable[[str], None],
) -> List[Record]:
    """Returns the records of all jobs: what they wrote, with "suite", "implementation", "pair" and "level".

    "pair" is the same in the records of a peer's job and in those of the job of ours before it.

    Args:
        suite: what to run.
        ours: our implementation in this suite.
        peers: the installed peers that it is compared with; may be empty.
        rounds: how often each peer runs.
        folder: where the jobs' logs and results are written.
        progress: called with a line of text before each job.
    """
    records: List[Record] = []

    def run(one: Implementation, pair: str) -> bool:
        progress(f"{suite.title}: {one.title}")
        output = folder / f"{suite.name}-{one.name}.jsonl"
        log = folder / f"{suite.name}-{one.name}.log"
        if suite.layout is None:
            job = one.job(suite.ranks, suite.options, output)
            assert job is not None, one.name
            outcome = run_job(job, output, suite.limit_seconds, log)
        else:
            rank = one.rank_of_hosts(suite.options, output)
            assert rank is not None, one.name
            with suite.layout.hosts() as hosts:
                outcome = run_job(suite.layout.job(hosts, rank), output, suite.limit_seconds, log)
        about = {
            "suite": suite.name,
            "implementation": one.name,
            "title": one.title,
            "level": one.level,
            "ours": one.ours,
            "pair": pair,
        }
        records.extend({**record, **about} for record in outcome.records)
        if outcome.error:
            records.append({**about, "error": outcome.error})
            progress(f"{suite.title}: {one.title}: {outcome.error}; its log is in {folder}")
        return not outcome.error

    excluded = set()
    for number in range(rounds):
        shift = number % max(1, len(peers))
        turn = [peer for peer in [*peers[shift:], *peers[:shift]] if peer.name not in excluded]
        for peer in turn or [None]:
            pair = f"{number}/{peer.name if peer else ''}"
            run(ours, pair)
            # A peer that has failed or did not end in time would do so again.
            if peer and not run(peer, pair):
                excluded.add(peer.name)
    return records
