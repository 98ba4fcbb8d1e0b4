"""The summary: for each claim, the lowest ratio in a range of sizes, and the size at which it was found."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from driver.figures import figures, size_text
from driver.tables import markdown

Record = Dict
KIB, MIB = 1 << 10, 1 << 20
EVERYTHING = 1 << 60


class Claim(NamedTuple):
    """A range of sizes of one suite, in which ours is compared with some peers or with memcpy."""

    text: str
    suite: str
    low: int  # bytes, inclusive
    high: int  # bytes, inclusive
    peers: Tuple[str, ...]  # names; the fastest one counts; empty: memcpy


_MPI = ("open_mpi", "open_mpi_sm", "mpich")
_HOROVOD = ("horovod", "horovod_mpi", "horovod_gloo")
_TENSORFLOW = (*_HOROVOD, "multi_worker_mirrored")
CLAIMS = (
    Claim("C++, in place, from 1 MiB on, to memcpy", "engine-2", MIB, EVERYTHING, ()),
    Claim("graph, from 1 MiB on, to memcpy", "graph-2", MIB, EVERYTHING, ()),
    Claim("C++, in place, below 64 KiB, to the best MPI", "engine-2", 0, 64 * KIB - 1, _MPI),
    Claim(
        "C++, in place, 64 KiB to 32 MiB, to the best peer", "engine-2", 64 * KIB, 32 * MIB, (*_MPI, "gloo")
    ),
    Claim(
        "C++, in place, above 32 MiB, to the best peer", "engine-2", 32 * MIB + 1, EVERYTHING, (*_MPI, "gloo")
    ),
    Claim("graph, below 64 KiB, to the best in TensorFlow", "graph-2", 0, 64 * KIB - 1, _TENSORFLOW),
    Claim("graph, below 64 KiB, to Horovod as it is", "graph-2", 0, 64 * KIB - 1, ("horovod",)),
    Claim("graph, 64 KiB and more, to the best in TensorFlow", "graph-2", 64 * KIB, EVERYTHING, _TENSORFLOW),
    Claim("graph, gradients of ResNet50, to torch", "keras_resnet50-graph-2", 0, EVERYTHING, ("torch_gloo",)),
    Claim("graph, gradients of ResNet50, to Horovod", "keras_resnet50-graph-2", 0, EVERYTHING, _HOROVOD),
    Claim("graph, gradients of BERT-base, to torch", "bert_base-graph-2", 0, EVERYTHING, ("torch_gloo",)),
    Claim("graph, gradients of BERT-base, to Horovod", "bert_base-graph-2", 0, EVERYTHING, _HOROVOD),
)


def lowest(records: Sequence[Record], claim: Claim) -> Optional[Tuple[float, int]]:
    """Returns the lowest ratio (how many times as fast ours is) and its size; None if not measured."""
    own = [record for record in records if record.get("suite") == claim.suite]
    found = figures(own)
    ours = {record["implementation"] for record in own if record.get("ours")}
    ratios: List[Tuple[float, int]] = []
    for (name, size), figure in found.items():
        if not claim.low <= size <= claim.high:
            continue
        if not claim.peers and name in ours:
            ratios.append((figure.memcpy_ratio, size))
        elif name in claim.peers and figure.ours_ratio is not None:
            ratios.append((figure.ours_ratio, size))
    return min(ratios) if ratios else None


def text(records: Sequence[Record]) -> str:
    """Returns the table, or an empty string if nothing of it was measured."""
    rows = []
    for claim in CLAIMS:
        least = lowest(records, claim)
        if least:
            rows.append([claim.text, f"{least[0]:.3g}×", size_text(least[1])])
    if not rows:
        return ""
    head = ["how many times as fast, with 2 ranks", "lowest", "at"]
    return "### Summary\n\n" + markdown(head, rows)
