"""horovodrun's options: each is taken, named as without effect, or refused with a remedy."""

import pathlib
import re

import pytest

from smddprun import horovodrun, mpi, options
from smddprun.hosts import Host
from smddprun.options import Options, UsageError, parse

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs" / "launcher.md"

# All options of horovodrun 0.28.1 but for -v, which is --verbose here; as its parser has them.
HOROVODRUNS = {
    *("-h", "--help", "--version", "--verbose", "-np", "--num-proc", "-cb", "--check-build"),
    *("--disable-cache", "--start-timeout", "--network-interfaces", "--network-interface"),
    *("--output-filename", "--config-file", "-p", "--ssh-port", "-i", "--ssh-identity-file"),
    *("--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity", "--num-nccl-streams"),
    *("--hierarchical-allreduce", "--no-hierarchical-allreduce", "--hierarchical-allgather"),
    *("--no-hierarchical-allgather", "--torus-allreduce", "--no-torus-allreduce"),
    *("--autotune", "--no-autotune", "--autotune-log-file", "--autotune-warmup-samples"),
    *("--autotune-steps-per-sample", "--autotune-bayes-opt-max-samples"),
    *("--autotune-gaussian-process-noise", "--min-np", "--min-num-proc", "--max-np", "--max-num-proc"),
    *("--slots-per-host", "--elastic-timeout", "--reset-limit", "--blacklist-cooldown-range"),
    *("--timeline-filename", "--timeline-mark-cycles", "--no-timeline-mark-cycles"),
    *("--no-stall-check", "--stall-check", "--stall-check-warning-time-seconds"),
    *("--stall-check-shutdown-time-seconds", "--mpi-threads-disable", "--no-mpi-threads-disable"),
    *("--mpi-args", "--tcp", "--binding-args", "--thread-affinity", "--gloo-timeout-seconds"),
    *("--log-level", "--log-with-timestamp", "--log-without-timestamp", "-prefix-timestamp"),
    *("--prefix-output-with-timestamp", "--log-hide-timestamp", "--no-log-hide-timestamp"),
    *("-H", "--hosts", "-hostfile", "--hostfile", "--host-discovery-script"),
    *("--gloo", "--mpi", "--jsrun"),
}


@pytest.mark.parametrize(
    "words, fields",
    [
        (["--output-filename", "logs"], {"output_dir": "logs"}),
        (["--timeline-filename=t.json"], {"timeline": "t.json"}),
        (["-hostfile", "hosts"], {"hostfile": "hosts"}),
        (["--start-timeout", "30"], {"exports": (("SMDDP_BOOTSTRAP_TIMEOUT", "30"),)}),
        (["--log-level", "TRACE"], {"exports": (("SMDDP_LOG_LEVEL", "debug"),)}),
        (["--log-level", "FATAL"], {"exports": (("SMDDP_LOG_LEVEL", "error"),)}),
        (["--no-stall-check"], {"exports": (("SMDDP_STALL_WARNING", "0"),)}),
        (["--stall-check-warning-time-seconds", "9"], {"exports": (("SMDDP_STALL_WARNING", "9"),)}),
        (["--stall-check-shutdown-time-seconds", "0"], {"exports": (("SMDDP_STALL_TIMEOUT", "0"),)}),
        # A variable of -x counts more, in any order.
        (
            ["-x", "SMDDP_LOG_LEVEL=none", "--log-level", "INFO"],
            {"exports": (("SMDDP_LOG_LEVEL", "info"), ("SMDDP_LOG_LEVEL", "none"))},
        ),
        (
            ["--network-interface", "eth1", "--network-interfaces=eth0,eth1"],
            {"interfaces": ("eth1", "eth0"), "exports": (("NCCL_SOCKET_IFNAME", "eth1,eth0"),)},
        ),
        (["-v"], {"verbose": True}),
        (["--reset-limit", "3"], {"max_restarts": 3}),
        (
            ["-np", "4", "--min-num-proc", "2", "--max-num-proc", "8", "--host-discovery-script", "hosts.sh"],
            {"num_ranks": 8, "min_ranks": 2, "discovery_script": "hosts.sh"},
        ),
        (
            ["--host-discovery-script=hosts.sh", "--slots-per-host", "2", "--elastic-timeout", "60"],
            {"discovery_script": "hosts.sh", "slots_per_host": 2, "elastic_timeout": 60.0},
        ),
    ],
)
def test_an_option_with_an_equal_here(words, fields):
    assert parse([*words, "train.py"]) == Options(command=("train.py",), **fields)


@pytest.mark.parametrize("word", ["-cb", "--check-build"])
def test_check_build_is_check(word):
    assert parse([word]) == Options(check=True)


@pytest.mark.parametrize("name", [*horovodrun.IGNORED, *horovodrun.IGNORED_WITH_VALUE])
def test_an_option_without_effect(name):
    words = [name, "4"] if name in horovodrun.IGNORED_WITH_VALUE else [name]
    assert parse([*words, "train.py"]) == Options(command=("train.py",), ignored=(name,))


@pytest.mark.parametrize("name", horovodrun.REFUSED)
@pytest.mark.parametrize("form", ["{}", "{}=2"])
def test_an_option_that_is_refused(name, form):
    with pytest.raises(UsageError) as error:
        parse([form.format(name), "2", "train.py"])
    assert str(error.value) == f"{name} of horovodrun: {horovodrun.REFUSED[name]}"


@pytest.mark.parametrize(
    "words, part",
    [
        (["--ssh-port", "0"], "--ssh-port '0': give a port from 1 to 65535"),
        (["-p", "99999"], "-p '99999': give a port"),
        (["-i", ""], "-i '': give the path of a file"),
        (["--output-filename", ""], "--output-filename '': give the path of a directory"),
        (["--log-level", "loud"], "--log-level 'loud': give one of trace, debug"),
        (["--start-timeout", "1.5"], "--start-timeout '1.5': give a whole number of seconds"),
        (["--network-interfaces", "eth0,"], "--network-interfaces 'eth0,': name network interfaces"),
        (["--log-leve", "INFO"], "did you mean '--log-level'?"),
    ],
)
def test_mistakes(words, part):
    with pytest.raises(UsageError) as error:
        parse([*words, "train.py"])
    assert part in str(error.value) and "\n" not in str(error.value)


def test_every_option_is_known_and_in_the_documentation():
    table = DOCS.read_text().partition("## Options of horovodrun")[2].partition("\n## ")[0]
    written = set(re.findall(r"`(-[-a-z]+)", table))
    known = {*options.with_value(), *options.words(), *horovodrun.SAME, *horovodrun.SETTINGS}
    known |= {*horovodrun.IGNORED, *horovodrun.REFUSED}
    assert known >= HOROVODRUNS
    same = {"-h", "--help", "--version", "--verbose", "-np", "--num-proc", "-H", "--hosts", "--hostfile"}
    assert written >= HOROVODRUNS - same


def test_the_ways_to_the_hosts():
    plain = {"A": "1"}
    assert mpi.with_ways_to_hosts(plain, Options()) == plain
    chosen = parse(["-p", "2222", "-i", "key", "--network-interface", "eth0", "-H", "a:1,b:1", "x"])
    assert mpi.with_ways_to_hosts(plain, chosen) == {
        "A": "1",
        "OMPI_MCA_plm_rsh_args": "-p 2222 -i key",
        "PRTE_MCA_plm_ssh_args": "-p 2222 -i key",
        "HYDRA_LAUNCHER_EXTRA_ARGS": "-p 2222 -i key",
        "OMPI_MCA_btl_tcp_if_include": "eth0",
        "OMPI_MCA_oob_tcp_if_include": "eth0",
        "PRTE_MCA_prte_if_include": "eth0",
        "HYDRA_IFACE": "eth0",
    }
    several = parse(["--network-interfaces", "eth0,eth1", "-H", "a:1,b:1", "x"])
    with pytest.raises(UsageError, match="--network-interfaces eth0,eth1: mpiexec takes one interface"):
        mpi.launch_words("mpiexec", "Hydra", [Host("a", 1), Host("b", 1)], several, plain, ["x"])


def test_one_line_names_what_has_no_effect(launcher):
    words = ["--cycle-time-ms", "1", "--autotune", "--cycle-time-ms=2", "--log-level", "INFO"]
    result = launcher.run(*words, "--max-restarts", 1, "bash", "-c", "echo $SMDDP_LOG_LEVEL; exit 3")
    assert (result.code, result.lines) == (3, ["info", "info"])
    line = "smddprun: without effect here: --cycle-time-ms, --autotune; docs/launcher.md says what "
    assert result.messages.count(line) == 1 and result.messages.count("without effect") == 1


def test_a_refused_option_is_a_mistake_on_the_command_line(launcher):
    result = launcher.run("-np", 2, "--jsrun", "bash", "-c", ":")
    assert (result.code, result.lines) == (2, [])
    assert result.messages.startswith("smddprun: --jsrun of horovodrun: leave it out"), result.messages
