"""The report of `smddprun --check`."""

import sys

import pytest

import smddprun
from smddprun import cores, options
from smddprun.check import findings, libraries, machine, programs, self_test, self_tests, versions
from smddprun.check.findings import Finding, Report
from smddprun.check.programs import Ended
from smddprun.hosts import Host

GIB = 1 << 30


def problems(found):
    return [each.topic for each in found if each.is_problem]


def test_options():
    chosen = options.parse(["-x", "A=1", "--check", "-H", "a,b", "--timeout", "9", "-v"])
    assert chosen.check and (chosen.hosts, chosen.timeout, chosen.command) == ("a,b", 9.0, ())
    assert not options.parse(["cmd", "--check"]).check
    assert "--check" in options.HELP


@pytest.mark.parametrize(
    "words, message",
    [
        (["python", "train.py"], "--check runs no command; leave out 'python'"),
        (["-np", "2"], "leave out -np$"),
        (["-n", "2"], "leave out -n$"),
        (["--threads-per-rank", "2"], "leave out --threads-per-rank"),
        (["--output-dir", "d"], "leave out --output-dir"),
        (["--no-tag-output"], "leave out --no-tag-output$"),
        (["-q"], "leave out -q$"),
        (["--grace", "1"], "leave out --grace"),
    ],
)
def test_what_cannot_be_beside_it(words, message):
    with pytest.raises(options.UsageError, match=message):
        options.parse(["--check", *words])


def test_the_lines_of_a_finding():
    assert Finding("cores", "2 of 2").lines() == ["  cores           2 of 2"]
    assert Finding("cores", "1 of 2\nbound", "unbind it").lines() == [
        "! cores           1 of 2",
        "                  bound",
        "                  remedy: unbind it",
    ]


def test_a_report_finds_its_way_through_other_output():
    report = Report("h", (Finding("a", "b\nc"), Finding("d", "ü", "f")), {"Python": "3.11"})
    line = findings.encode("report", report)
    assert line.count("\n") == 1
    output = f"a banner\n[1,0]<stdout>: {line}{findings.encode('other', [1])}{line[:30]}\n"
    assert [findings.report_of(each) for each in findings.decode("report", output)] == [report]
    assert findings.decode("report", "nothing") == []


def test_hosts_that_differ():
    one = Report("a", (), {"Python": "3.11", "tf_smddp": "1", "MPI library": "Open MPI v4.1.4"})
    same = Report("b", (), dict(one.versions))
    other = Report("c", (), {**one.versions, "tf_smddp": "2"})
    assert findings.disagreements([one, same]) == []
    assert findings.disagreements([one, Report("silent", (), {})]) == []
    (found,) = findings.disagreements([one, same, other])
    assert (found.topic, found.text) == ("tf_smddp", "a has 1, and c has 2") and found.is_problem


def test_what_keeps_a_job_from_starting():
    assert Report("a", (Finding("NCCL", "none", "install it"), Finding("tf_smddp", "1")), {}).can_start
    assert not Report("a", (Finding("tf_smddp", "none", "install it"),), {}).can_start


def made_package(folder, text, library=True):
    (folder / "_build_info.py").write_text(text)
    if library:
        (folder / "_smddp_ops.so").write_bytes(b"")
    return folder


@pytest.mark.parametrize(
    "text, library, expected",
    [
        ('"""About."""\n\nTF_VERSION = "2.15.1"\n', True, "2.15.1"),
        ('TF_VERSION = "2.15.1"\n', False, None),
        ("OTHER = 1\n", True, None),
        ("TF_VERSION = (\n", True, None),
    ],
)
def test_what_the_library_was_built_for(tmp_path, text, library, expected):
    assert versions.built_for(made_package(tmp_path, text, library)) == expected
    assert versions.built_for(tmp_path / "nowhere") is None


def test_tensorflow_fits_by_its_minor_version():
    assert not versions._fit("2.15.1", ("tensorflow-cpu", "2.15.0")).is_problem
    other = versions._fit("2.15.1", ("tensorflow", "2.21.0"))
    assert "2.21.0" in other.text and "2.15.1" in other.text
    assert "'tensorflow==2.15.*'" in other.remedy
    missing = versions._fit("2.21.0", None)
    assert "not installed" in missing.text and "'tensorflow==2.21.*'" in missing.remedy


def test_tf_smddp_that_is_missing_incomplete_or_another(tmp_path):
    assert "pip install ." in versions._tf_smddp(None, None, None).remedy
    assert "no compiled library" in versions._tf_smddp(tmp_path, "0.1.0", None).text
    assert not versions._tf_smddp(tmp_path, smddprun.__version__, "2.15.1").is_problem
    other = versions._tf_smddp(tmp_path, "9.9", "2.15.1")
    assert "9.9" in other.text and smddprun.__version__ in other.text and other.is_problem


@pytest.mark.parametrize(
    "numbers, text, problem",
    [
        ((8, 8, None, 8), "8 of 8 may be used", False),
        ((8, 2, None, 2), "2 of 8 may be used; this process is bound to 2", False),
        ((8, 8, 1.5, 1), "1 of 8 may be used; the control group's quota is 1.5", False),
        ((8, 1, None, 1), "1 of 8 may be used; this process is bound to 1", True),
        ((1, 1, None, 1), "1 of 1 may be used", False),
    ],
)
def test_cores(numbers, text, problem):
    found = machine.cores_of(*numbers)
    assert (found.text, found.is_problem) == (text, problem)


@pytest.mark.parametrize(
    "numbers, parts, problem",
    [
        ((8 * GIB, None, None), ("8 GiB, no lower limit", "up to 8 GiB"), False),
        ((8 * GIB, 1 << 62, None), ("8 GiB, no lower limit", "up to 8 GiB"), False),
        ((8 * GIB, 2 * GIB, None), ("limit is 2 GiB", "up to 2 GiB"), False),
        ((8 * GIB, 2 * GIB, str(GIB)), ("up to 1 GiB", f"SMDDP_ARENA_BYTES={GIB}"), False),
        ((8 * GIB, 2 * GIB, str(3 * GIB)), ("up to 3 GiB",), True),
        ((8 * GIB, None, "much"), ("up to 8 GiB",), False),  # init() refuses it
    ],
)
def test_memory(numbers, parts, problem):
    found = machine.memory(*numbers)
    assert all(part in found.text for part in parts), found.text
    assert found.is_problem == problem


@pytest.mark.parametrize(
    "values, expected",
    [
        ((1024, 1 << 20, [], -1, -1), []),
        ((-1, -1, ["mlx5_0"], -1, -1), []),
        ((128, -1, [], -1, -1), ["open files"]),
        ((1024, 1 << 20, ["mlx5_0"], -1, -1), ["locked memory"]),
        ((1024, -1, [], GIB, GIB), ["address space", "file size"]),
    ],
)
def test_limits(values, expected):
    assert problems(machine.limits(*values)) == expected


def test_sizes():
    numbers = (0, 1023, 1024, 1536, 1000 << 20, 3 * GIB, 5 << 50)
    assert [machine.size(number) for number in numbers] == [
        *("0 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "1000 MiB", "3 GiB", "5120 TiB"),
    ]


def test_the_memory_limit_is_the_smallest_on_the_way_to_the_root(monkeypatch):
    tree = {f"{cores._CGROUP_ROOT}/{name}": text for name, text in {
        "memory.max": "max", "pod/memory.max": "4096", "pod/box/memory.max": "8192",
        "memory/old/memory.limit_in_bytes": "5000",
    }.items()}  # fmt: skip
    tree["/proc/self/cgroup"] = "3:memory:/old\n2:cpu:/x\n0::/pod/box\n"
    monkeypatch.setattr(cores, "_read", tree.get)
    assert cores.memory_limit() == 4096
    tree["/proc/self/cgroup"] = "0::/\n"
    assert cores.memory_limit() is None


@pytest.mark.parametrize(
    "there, several_hosts, problem", [(False, False, False), (False, True, True), (True, True, False)]
)
def test_mpi(there, several_hosts, problem):
    found = libraries.mpi_of(there, "1.0 (/lib/x)", several_hosts)
    assert found.is_problem == problem and "1.0 (/lib/x)" in found.text


def ranks_said(*numbers):
    said = {"device": "CPU:0", "right": "each collective is right", "past_nccl": []}
    places = [{"rank": each, "host": f"h{each}", **said} for each in numbers]
    return "".join(findings.encode(self_test.KIND, each) for each in places)


def test_a_self_test_that_is_right():
    warning = "[tf_smddp rank 0 warning] a limit is low; raise it"
    (found, note) = self_tests.result(Ended(0, ranks_said(1, 0), f"[0] {warning}\n{warning}\n"), 2, 9)
    assert found.text == "2 ranks on h0 (CPU:0), h1 (CPU:0): each collective is right"
    assert (note.text, note.is_problem, found.is_problem) == (warning, False, False)


@pytest.mark.parametrize(
    "ended, parts",
    [
        (Ended(0, ranks_said(0), ""), ["1 have the right results: exit code 0"]),
        (Ended(0, ranks_said(0, 0), ""), ["exit code 0"]),
        (Ended(1, ranks_said(0, 1), "rank 1: wrong"), ["exit code 1", "\n| rank 1: wrong"]),
        (Ended(124, "", "x"), ["the test took longer than 9 s"]),
        (Ended(None, "", ""), ["the test took longer than 9 s"]),
        (Ended(-9, "", ""), ["ended by signal 9"]),
        (Ended(1, "", "Traceback\n[1] RuntimeError: full\nsmddprun: exit code 1"), ["\nRuntimeError: full"]),
    ],
)
def test_a_self_test_that_fails(ended, parts):
    (found,) = self_tests.result(ended, 2, 9)
    assert found.is_problem and found.topic == "self test"
    for part in parts:
        assert part in found.text


def test_the_warnings_of_a_self_test_that_is_late():
    warning = "[tf_smddp rank 0 warning] rank 1 has not come"
    (found, note) = self_tests.result(Ended(None, "", warning), 2, 9)
    assert "warnings" in found.remedy and note.text == warning


def test_what_is_for_the_check_is_not_shown():
    assert Ended(1, f"[0] {ranks_said(0)}said\n", "").excerpt() == "| said"


def test_long_output_is_shown_by_its_ends():
    shown = Ended(1, "", "\n".join(f"line {number}" for number in range(100))).excerpt().split("\n")
    assert shown[0] == "| line 0" and shown[-1] == "| line 99" and len(shown) < 20 and "| ..." in shown


def test_ranks_that_wait_say_so_before_the_limit():
    environ = self_tests.environment({"SMDDP_STALL_WARNING": "7"}, 60)
    assert environ == {
        "SMDDP_STALL_WARNING": "7",
        "SMDDP_BOOTSTRAP_TIMEOUT": "40",
        "SMDDP_NCCL_TIMEOUT": "30",
    }


def test_the_words_of_the_self_test():
    own = programs.words_of("smddprun.check.self_test")
    assert own[:2] == [sys.executable, "-c"]
    words, environ = self_tests.on_this_host(2)({"A": "1"}, 9, ["x"])
    assert words[-len(own) - 6 :] == ["-np", "2", "--no-tag-output", "--timeout", "9", *own, "x"]
    assert environ == {"A": "1"}
    launcher, hosts = ("/bin/mpiexec", "Hydra"), [Host(name, 8) for name in ("a", "b")]
    words, environ = self_tests.on_hosts(launcher, hosts, 1)({"A": "1"}, 9, [])
    assert words == ["/bin/mpiexec", "-np", "2", "-hosts", "a:1,b:1", *own]
    assert environ == {"A": "1", "MPIEXEC_TIMEOUT": "9"}
    words, _ = self_tests.on_hosts(launcher, hosts[:1], 2)({}, 9, [])
    assert words == ["/bin/mpiexec", "-np", "2", "-hosts", "a:2", *own]
