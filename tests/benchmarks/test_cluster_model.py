"""The model of a cluster (docs/cluster-model.md): the sums that it computes, and its times by the formula."""

import pathlib
import subprocess

import formula
import pytest
import simulate
import sweep

NETWORK = sweep.NETWORKS[10]
# Small and large tensors, and an empty one: 4.3 MB, in two batches of the cap below.
TENSORS = [100, 5_000, 600_000, 17, 0, 1, 70_000, 400_000]
CAP_BYTES = 2 << 20


@pytest.fixture(scope="module", name="programs")
def compiled(tmp_path_factory) -> pathlib.Path:
    """The folder of the compiled programs."""
    folder = tmp_path_factory.mktemp("programs")
    subprocess.run([simulate.HERE / "build.sh", folder], check=True, timeout=900)
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    "algorithm, hosts, per_host",
    [
        *[(each, *places) for each in ("ours", "ring", "horovod") for places in ((2, 1), (3, 2), (4, 1))],
        *[("grouped", *places) for places in ((3, 2), (4, 1), (7, 1))],
        *[(each, *places) for each in ("halving", "doubling") for places in ((2, 1), (4, 2))],
        ("server", 3, 1),
    ],
)
def test_sums(programs, algorithm, hosts, per_host):
    servers = 1 if algorithm == "server" else 0
    result = simulate.model(
        programs,
        NETWORK,
        hosts + servers,
        per_host,
        TENSORS,
        servers=servers,
        check=1,
        repeats=2,
        cap_bytes=CAP_BYTES,
        **sweep.FORCED.get(algorithm, {"algorithm": algorithm}),
    )
    assert result["right"] is True, result


@pytest.mark.long
@pytest.mark.parametrize("hosts", [2, 3, 4])
def test_the_time_is_that_of_the_formula(programs, hosts):
    size = 4 << 20
    for algorithm in ("ours", "hosts_ring"):
        result = simulate.model(programs, NETWORK, hosts, 1, [size // 4], algorithm=algorithm)
        expected = 1e3 * formula.seconds(algorithm, NETWORK, hosts, 1, size)
        assert expected == pytest.approx(result["ms"][0], rel=0.15), algorithm


def test_the_committed_results_fit_the_formula():
    rows = formula.deviations()
    assert {row["algorithm"] for row in rows} >= {"direct", "grouped", "hosts_ring", "halving"}
    for row in rows:
        assert abs(row["deviation"]) < formula.LARGEST_DEVIATION, row


def test_our_way_beats_a_ring_on_many_hosts():
    """As docs/cluster-model.md says: since pieces grow with the hosts, their parts do not get too small."""
    for hosts in (2, 16, 128, 1024):
        ours, ring = (
            formula.step_seconds(each, NETWORK, hosts, 8, "keras_resnet50") for each in ("ours", "hosts_ring")
        )
        assert ours < ring, hosts
