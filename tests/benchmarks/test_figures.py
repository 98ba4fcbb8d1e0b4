"""The arithmetic between what jobs measure and what the tables say. Standard library only."""

import pytest
from driver import summary
from driver.figures import figures, size_text, time_text
from driver.report import BEGIN, END, _results, insert, is_in_document
from driver.summary import Claim, lowest
from driver.tables import suite_table
from peers.base import implementations
from peers.torch_distributed import BUCKET_BYTES, FIRST_BUCKET_BYTES, bucket_counts
from training.steps import parse_variant
from workloads.options import ELEMENT_BYTES, gradient_sets, read_shapes


def record(name, pair, seconds, size=1 << 20, memcpy=2.0):
    return {
        "suite": "s",
        "implementation": name,
        "title": name.upper(),
        "ours": name == "engine",
        "pair": pair,
        "bytes": size,
        "seconds": seconds,
        "memcpy_seconds": [memcpy],
    }


def test_a_peer_is_compared_with_the_run_before_it():
    records = [
        record("engine", "0/a", [1.0, 9.0, 1.0]),
        record("a", "0/a", [4.0]),
        record("engine", "1/a", [10.0]),
        record("a", "1/a", [40.0]),
    ]
    found = figures(records)
    assert found["a", 1 << 20].ours_ratio == 4.0
    ours = found["engine", 1 << 20]
    assert (ours.seconds, ours.low, ours.high) == (5.5, 1.0, 10.0)
    assert ours.ours_ratio is None
    assert ours.memcpy_ratio == pytest.approx((2.0 + 0.2) / 2)


def test_a_peer_without_a_run_of_ours_has_no_ratio():
    assert figures([record("a", "0/a", [1.0])])["a", 1 << 20].ours_ratio is None


def test_a_difference_below_zero_gives_no_negative_ratio():
    found = figures([record("engine", "0/a", [-1.0]), record("a", "0/a", [1.0])])
    assert found["a", 1 << 20].ours_ratio == pytest.approx(1e9)


def test_a_claim_is_about_the_worst_size_and_the_best_peer():
    records = [record("engine", f"0/{peer}", [1.0], size) for peer in ("a", "b") for size in (4, 64)]
    records += [record("a", "0/a", [3.0], 4), record("a", "0/a", [5.0], 64)]
    records += [record("b", "0/b", [4.0], 4), record("b", "0/b", [2.0], 64)]
    assert lowest(records, Claim("", "s", 0, 100, ("a", "b"))) == (2.0, 64)
    assert lowest(records, Claim("", "s", 0, 63, ("a", "b"))) == (3.0, 4)
    assert lowest(records, Claim("", "s", 0, 100, ())) == (2.0, 4)
    assert lowest(records, Claim("", "s", 65, 100, ("a",))) is None


def test_the_table_names_what_failed_and_what_is_not_there():
    records = [record("engine", "0/a", [1.0]), {**record("a", "0/a", []), "error": "exit code 3"}]
    del records[1]["seconds"]
    text = suite_table(records, ["Something"])
    assert "A: exit code 3" in text
    assert "Not installed: Something." in text


def test_only_the_part_between_the_markers_is_written():
    text = insert(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new")
    assert text == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert insert(text, "new") == text
    with pytest.raises(ValueError, match="markers"):
        insert("no such thing", "new")


@pytest.mark.parametrize(
    "size, text",
    [(4, "4 B"), (1024, "1 KiB"), (25 << 20, "25 MiB"), (102_334_368, "102.3 MB"), (1025, "1025 B")],
)
def test_sizes(size, text):
    assert size_text(size) == text


@pytest.mark.parametrize(
    "seconds, text", [(2.0, "2 s"), (0.0123, "12.3 ms"), (4.56e-6, "4.56 µs"), (7e-9, "7 ns")]
)
def test_times(seconds, text):
    assert time_text(seconds) == text


@pytest.mark.parametrize("name", gradient_sets())
def test_buckets_hold_each_gradient_once(name):
    counts = [1 for _ in read_shapes(name)]
    for i, shape in enumerate(read_shapes(name)):
        for length in shape:
            counts[i] *= length
    buckets = bucket_counts(counts)
    assert [i for bucket in buckets for i in bucket] == list(reversed(range(len(counts))))
    for number, bucket in enumerate(buckets):
        # The last tensor fills the bucket: without it there is room.
        limit = BUCKET_BYTES if number else FIRST_BUCKET_BYTES
        assert sum(counts[i] for i in bucket[:-1]) * ELEMENT_BYTES < limit


def test_implementations_have_names_of_their_own():
    names = [one.name for one in implementations()]
    assert len(set(names)) == len(names)
    assert [one.ours for one in implementations()] == sorted(
        (one.ours for one in implementations()), reverse=True
    )


def test_variants():
    assert parse_variant("stock-like:A=1,B=x=y") == ("stock-like", {"A": "1", "B": "x=y"})
    assert parse_variant("tf_smddp") == ("tf_smddp", {})


def test_the_document_has_some_sizes_and_the_summary_counts_all():
    memcpy = {1 << 20: 2.0, 4 << 20: 1.0, 25 << 20: 3.0}
    own = [record("engine", "0/a", [1.0], size, ratio) for size, ratio in memcpy.items()]
    records = [{**each, "suite": "graph-2", "work": "sweep"} for each in own]
    records.append({"suite": "graph-2", "suite_title": "graph", "absent": []})
    assert "| graph, from 1 MiB on, to memcpy | 1× | 4 MiB |" in summary.text(records)
    text = "\n".join(_results(list(filter(is_in_document, records)), ["graph-2"]))
    assert "\n| 1 MiB |" in text and "\n| 25 MiB |" in text and "\n| 4 MiB |" not in text
