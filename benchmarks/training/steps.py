"""A training step with the plugin loaded, against stock TensorFlow, without any communication.

Processes alternate: stock, plugin, stock, plugin, …. Each process gives the median of its steps, and each
pair of neighbours gives a ratio. Differences between processes (addresses, other work on the machine) thus
show as the spread of the ratios.
"""

from __future__ import annotations

import pathlib
import statistics
from typing import Callable, Dict, List, Sequence, Tuple

from driver.figures import time_text
from driver.tables import markdown

from training.jobs import Size, train

Record = Dict
SIZES = {"mlp": Size(64, 150), "cnn": Size(32, 40), "resnet50": Size(8, 8)}
QUICK_SIZES = {"mlp": Size(8, 3), "cnn": Size(4, 3)}

# The names of the variants that are compared with stock TensorFlow, each with its environment variables.
Variants = Dict[str, Dict[str, str]]


def parse_variant(text: str) -> Tuple[str, Dict[str, str]]:
    """Reads NAME:VARIABLE=VALUE,VARIABLE=VALUE; a name alone takes no variables."""
    name, _, settings = text.partition(":")
    return name, dict(setting.split("=", 1) for setting in settings.split(",") if setting)


def run(
    folder: pathlib.Path, processes: int, quick: bool, progress: Callable[[str], None], variants: Variants
) -> List[Record]:
    """Returns a record for each process: "training" (the model), "variant", "pair", "seconds" (of a step)."""
    records: List[Record] = []
    for model, size in (QUICK_SIZES if quick else SIZES).items():
        for number in range(processes):
            for variant in variants:
                for name, ranks in (("stock", 0), (variant, 1)):
                    progress(f"training step, {model}: {name}")
                    output = folder / f"training-{model}-{name}.jsonl"
                    outcome = train(model, size, output, ranks, environment=variants.get(name))
                    record: Record = {"training": model, "variant": name, "pair": f"{number}/{variant}"}
                    if outcome.error or not outcome.records:
                        about = {"title": f"training {model}, {name}", "error": outcome.error, "ours": True}
                        records.append({**record, **about})
                        continue
                    seconds = statistics.median(outcome.records[0]["apart"][0])
                    records.append({**record, "seconds": seconds})
    return records


def text(records: Sequence[Record]) -> str:
    """Returns the table, or an empty string if nothing of this was measured."""
    own = [record for record in records if "training" in record and "seconds" in record]
    if not own:
        return ""
    rows = []
    for model in dict.fromkeys(record["training"] for record in own):
        of_model = [record for record in own if record["training"] == model]
        by_kind = {(record["variant"], record["pair"]): record["seconds"] for record in of_model}
        for variant in dict.fromkeys(r["variant"] for r in of_model if r["variant"] != "stock"):
            pairs = [
                (by_kind["stock", pair], seconds)
                for (name, pair), seconds in by_kind.items()
                if name == variant and ("stock", pair) in by_kind
            ]
            ratios = sorted(stock / ours for stock, ours in pairs)
            rows.append(
                [
                    f"{model}, {variant}",
                    time_text(statistics.median(stock for stock, _ in pairs)),
                    time_text(statistics.median(ours for _, ours in pairs)),
                    f"{statistics.median(ratios):.3f}×",
                    f"{ratios[0]:.3f} – {ratios[-1]:.3f}",
                    str(len(pairs)),
                ]
            )
    head = ["model", "stock", "with the plugin", "speed of stock's", "from – to", "pairs of processes"]
    return "### A training step without communication\n\n" + markdown(head, rows)
