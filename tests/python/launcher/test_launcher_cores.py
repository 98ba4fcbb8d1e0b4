"""The division of the cores, and quotas in a made-up tree of cgroup files."""

import os

import pytest
from launcher_harness import after

from smddprun import cores


def test_fair_share():
    for num_ranks in range(1, 18):
        for total in [*range(1, 35), 96, 97, 192]:
            share = cores.fair_share(total, num_ranks)
            assert share >= 1
            assert share == 1 or share * num_ranks <= total
            assert (share + 1) * num_ranks > total


@pytest.mark.parametrize("text,expected", [("max 100000", None), ("150000 100000", 1.5), ("200000", 2.0)])
def test_cpu_max(text, expected):
    assert cores.parse_cpu_max(text) == expected


@pytest.mark.parametrize("quota,expected", [("-1", None), ("50000", 0.5), ("400000", 4.0)])
def test_cfs(quota, expected):
    assert cores.parse_cfs(quota, "100000") == expected


def test_membership():
    text = "9:name=systemd:/\n4:memory:/a\n3:cpuset:/b\n2:cpuacct,cpu:/c:d\n0::/user.slice/x\n"
    root = "/sys/fs/cgroup"
    assert sorted(cores.parse_membership(text)) == sorted(
        [(f"{root}/cpuacct,cpu", "/c:d"), (f"{root}/cpu", "/c:d"), (root, "/user.slice/x")]
    )
    assert cores.parse_membership("") == []


@pytest.mark.parametrize(
    "files,expected",
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"pod/cpu.max": "250000 100000"}, 2.5),
        ({"cpu.max": "300000 100000", "pod/cpu.max": "max 100000", "pod/box/cpu.max": "400000 100000"}, 3.0),
        ({"cpu/pod/cpu.cfs_quota_us": "150000", "cpu/pod/cpu.cfs_period_us": "100000"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_quota_is_the_smallest_on_the_way_to_the_root(monkeypatch, files, expected):
    tree = {f"{cores._CGROUP_ROOT}/{name}": text for name, text in files.items()}
    tree["/proc/self/cgroup"] = "2:cpu:/pod/box\n0::/pod/box\n"
    monkeypatch.setattr(cores, "_read", tree.get)
    assert cores.quota() == expected


@pytest.mark.parametrize("quota,expected", [(None, 8), (0.5, 1), (1.0, 1), (2.9, 2), (8.0, 8), (64.0, 8)])
def test_usable_is_limited_by_affinity_and_quota(monkeypatch, quota, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(cores, "quota", lambda: quota)
    assert cores.usable() == expected


def test_usable_here():
    assert 1 <= cores.usable() <= len(os.sched_getaffinity(0))


ON_ONE_CORE = after("import os", "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])")


@pytest.mark.parametrize("words", [["-np", 2], ["-H", "localhost:2"]], ids=str)
def test_a_note_where_ranks_share_a_core(launcher, words):
    result = launcher.run(*words, "bash", "-c", ":", program=ON_ONE_CORE)
    assert (result.code, result.messages) == (0, "")
    assert result.notes == ["smddprun: note: 2 ranks share 1 core and take turns; '-np 1' may be faster"]
    assert launcher.run("-np", 1, "bash", "-c", ":", program=ON_ONE_CORE).notes == []


def test_the_note_is_written_once(launcher):
    result = launcher.run("-np", 2, "--max-restarts", 1, "bash", "-c", "exit 3", program=ON_ONE_CORE)
    assert result.code == 3 and "start 1 of 1 again" in result.messages
    assert len(result.notes) == 1
