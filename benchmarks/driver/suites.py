"""Suites: each compares one of our implementations with its peers, and gives one table and one plot."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Optional, Sequence, Tuple

from workloads.options import WorkOptions, gradient_sets

from driver.hosts import LAYOUTS, Layout

KIB, MIB = 1 << 10, 1 << 20
SIZES = (
    4,
    64,
    *(n * KIB for n in (1, 4, 16, 64, 256)),
    *(n * MIB for n in (1, 4, 16, 25, 32, 64, 100, 256)),
)
QUICK_SIZES = (4, 64 * KIB, MIB)
KERAS_RESNET50 = "keras_resnet50"
# After a pause, a link that is limited sends 256 kB at once, which takes 2 ms at 1 Gbit/s. A block is long
# beside that.
HOSTS_BLOCK_SECONDS = 0.1

# The levels of the peers that each of our implementations is compared with: those that do the same work.
LEVELS: Dict[str, Tuple[str, ...]] = {
    "engine": ("C++",),
    "graph": ("graph", "torch"),
    "eager": (),
    "torch_smddp": ("torch",),
}


@dataclasses.dataclass(frozen=True)
class Suite:
    """A comparison of one of our implementations with its peers, for one number of ranks."""

    name: str
    title: str
    ours: str
    ranks: int
    options: WorkOptions
    limit_seconds: float = 240  # for each job
    layout: Optional[Layout] = None  # None: one host

    def peer_levels(self) -> Tuple[str, ...]:
        """Returns the levels of the implementations that it is compared with."""
        return LEVELS[self.ours]


def suites(
    kinds: Sequence[str], ranks: Sequence[int], python_ranks: Sequence[int], quick: bool
) -> List[Suite]:
    """Returns the suites of some kinds: "engine", "graph", "eager", "torch", "sets", "hosts".

    Args:
        kinds: the kinds.
        ranks: the numbers of ranks for C++.
        python_ranks: the numbers of ranks for Python.
        quick: few sizes and samples, to check that everything works.
    """
    sweep = (
        WorkOptions(sizes=QUICK_SIZES, blocks=1, block_seconds=0.002) if quick else WorkOptions(sizes=SIZES)
    )
    found: List[Suite] = []
    for n in ranks if "engine" in kinds else ():
        found.append(Suite(f"engine-{n}", f"C++, in place, {n} ranks", "engine", n, sweep))
        apart = dataclasses.replace(sweep, in_place=False)
        found.append(Suite(f"engine-apart-{n}", f"C++, not in place, {n} ranks", "engine", n, apart))
    for kind in ("graph", "eager"):
        for n in python_ranks if kind in kinds else ():
            found.append(Suite(f"{kind}-{n}", f"TensorFlow, {kind}, {n} ranks", kind, n, sweep))
    for n in python_ranks if "torch" in kinds else ():
        found.append(Suite(f"torch-{n}", f"PyTorch, {n} ranks", "torch_smddp", n, sweep))
        step = dataclasses.replace(sweep, sizes=(), gradient_set=KERAS_RESNET50)
        title = f"{KERAS_RESNET50} in one step, PyTorch, {n} ranks"
        found.append(Suite(f"{KERAS_RESNET50}-torch-{n}", title, "torch_smddp", n, step))
    names = [KERAS_RESNET50] if quick else gradient_sets()
    for name in names if "sets" in kinds else ():
        step = dataclasses.replace(sweep, sizes=(), gradient_set=name)
        for ours in ("engine", "graph", "eager"):
            n = ranks[0] if ours == "engine" else python_ranks[0]
            title = f"{name} in one step, {'C++' if ours == 'engine' else ours}, {n} ranks"
            found.append(Suite(f"{name}-{ours}-{n}", title, ours, n, step))
    for layout in (LAYOUTS[:1] if quick else LAYOUTS) if "hosts" in kinds else ():
        n = sum(layout.counts)
        name = f"{'+'.join(map(str, layout.counts))}-{layout.rate or 'unlimited'}"
        longer = sweep if quick else dataclasses.replace(sweep, block_seconds=HOSTS_BLOCK_SECONDS)
        few = dataclasses.replace(longer, sizes=tuple(size for size in sweep.sizes if size <= 25 * MIB))
        step = dataclasses.replace(longer, sizes=(), gradient_set=KERAS_RESNET50)
        for ours in ("engine", "graph"):
            level = "C++" if ours == "engine" else "TensorFlow, graph"
            title = f"{level}, {layout.title}"
            found.append(Suite(f"hosts-{name}-{ours}", title, ours, n, few, layout=layout))
            found.append(
                Suite(f"hosts-{name}-{ours}-set", f"{KERAS_RESNET50}, {title}", ours, n, step, layout=layout)
            )
    return found
