"""`wellfed check` and `wellfed explain` from the command line, and the configuration they read."""

import json
from pathlib import Path

import pytest

from wellfed.check import INTENTS, host_codes
from wellfed.cli import config as cli_config
from wellfed.cli.config import Config, read_config
from wellfed.model import WellfedError

FILES = {
    "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu avx\n",
    "proc/sys/vm/overcommit_memory": "2\n",
    "proc/sys/kernel/hostname": "marguerite\n",
    "proc/self/limits": "Max open files            1024                 1048576              files\n",
    "proc/self/cgroup": "0::/\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "sys/devices/system/node/node0/cpulist": "0\n",
}


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A recorded machine as a folder: overcommit is forbidden (MEM10), huge pages are well."""
    for name, text in FILES.items():
        path = tmp_path / "box" / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "box" / "environ.json").write_text('{"RANK": "0"}')
    (tmp_path / "box" / "manifest.json").write_text('{"format": 1}')
    return tmp_path / "box"


def verdicts(out: str) -> dict[str, dict]:
    return {verdict["code"]: verdict for verdict in json.loads(out)["verdicts"]}


# -- check --------------------------------------------------------------------------------------------------


def test_check_judges_a_recorded_machine(run_cli, box: Path) -> None:
    code, out, err = run_cli("check", "--host", box, "--format", "json")
    assert (code, err) == (0, ""), "a warning is below --fail-on error"
    found = verdicts(out)
    assert set(found) == set(host_codes())
    assert found["MEM10"]["verdict"] == "finding"
    evidence = found["MEM10"]["evidence"][0]
    assert (evidence["source"], evidence["text"]) == ("/proc/sys/vm/overcommit_memory", "2")
    assert found["MEM01"]["verdict"] == "pass"
    assert found["GPU05"]["verdict"] == "not-judged"
    counts = json.loads(out)["counts"]
    assert sum(counts.values()) == len(host_codes()) and counts["finding"] >= 1


def test_the_exit_code_follows_fail_on(run_cli, box: Path) -> None:
    assert run_cli("check", "--host", box, "--fail-on", "warning").code == 1
    assert run_cli("check", "--host", box, "--fail-on", "never").code == 0


def test_the_text_names_the_finding_its_cure_and_the_way_back(run_cli, box: Path) -> None:
    out = run_cli("check", "--host", box).out
    for part in ("MEM10", "overcommit-forbidden", "sysctl vm.overcommit_memory=0", "Not judged"):
        assert part in out


def test_a_host_that_is_not_there_is_a_clear_error(run_cli) -> None:
    code, out, err = run_cli("check", "--host", "nowhere.tar")
    assert (code, out) == (2, "") and "nowhere.tar" in err and "hint:" in err


def test_an_ignored_finding_moves_aside_with_its_reason(run_cli, box: Path) -> None:
    Path("wellfed.toml").write_text('[ignore]\nMEM10 = "databases, ticket 7"\n')
    code, out, err = run_cli("check", "--host", box, "--format", "json", "--fail-on", "warning")
    assert (code, err) == (0, "")
    assert "MEM10" not in verdicts(out)
    (ignored,) = json.loads(out)["ignored"]
    assert (ignored["code"], ignored["message"]) == ("MEM10", "databases, ticket 7")


def test_ignores_that_are_wrong_or_not_needed_are_told(run_cli, box: Path) -> None:
    Path("wellfed.toml").write_text(
        '[ignore]\nMEM01 = "old"\nCPU99 = "typing error"\nGPU05 = "not seen here"\n'
    )
    code, _, err = run_cli("check", "--host", box)
    assert code == 0
    assert "ignores what there is not: no check `CPU99`; nearest: CPU" in err
    assert "the ignore of MEM01 is not needed here" in err
    assert "GPU05" not in err, "what was not judged may still need its ignore"


def test_the_intent_comes_from_the_flag_then_the_file_then_training(run_cli, box: Path) -> None:
    def reason() -> str | None:
        return verdicts(run_cli("check", "--host", box, "--format", "json").out)["MEM01"]["reason"]

    assert reason() is None
    Path("wellfed.toml").write_text('intent = "latency"\n')
    assert reason() == "intent"
    flag = run_cli("check", "--host", box, "--format", "json", "--intent", "training")
    assert verdicts(flag.out)["MEM01"]["verdict"] == "pass"


def test_an_unknown_intent_is_a_usage_error(run_cli) -> None:
    code, _, err = run_cli("check", "--intent", "knitting")
    assert code == 2 and "training" in err


# -- explain ------------------------------------------------------------------------------------------------


def test_explain_shows_the_page_and_what_this_machine_shows(run_cli, box: Path) -> None:
    code, out, _ = run_cli("explain", "MEM10", "--host", box)
    assert code == 0
    for part in (
        "MEM10 overcommit-forbidden", "What it looks at", "Why it costs", "How it is judged", "Remedy", "Restore",
        "When to ignore", "Sources", "This machine", "finding (warning)", "from /proc/sys/vm/overcommit_memory",
    ):  # fmt: skip
        assert part in out, part
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("code", ["PCIE01", "ENV11", "CPU01"])
def test_functions_and_entries_have_the_same_page(run_cli, box: Path, code: str) -> None:
    out = run_cli("explain", code, "--host", box).out
    headings = [line for line in out.splitlines() if line and not line.startswith(" ")]
    for heading in (
        "What it looks at",
        "Why it costs",
        "How it is judged",
        "Remedy",
        "When to ignore",
        "Sources",
    ):
        assert heading in headings
    assert "This machine" in headings


@pytest.mark.parametrize("code", ["mem10", "MEM-10", "mem-10"])
def test_a_code_may_be_written_as_people_write_it(run_cli, box: Path, code: str) -> None:
    assert run_cli("explain", code, "--host", box).out.startswith("MEM10 ")


@pytest.mark.parametrize(("name", "code"), [("overcommit-forbidden", "MEM10"), ("Data-Wait", "T110")])
def test_the_name_beside_a_code_is_as_good(run_cli, box: Path, name: str, code: str) -> None:
    assert run_cli("explain", name, "--host", box).out.startswith(f"{code} {name.lower()}\n")


def test_explain_as_json_is_redacted(run_cli, box: Path) -> None:
    run_cli("explain", "MEM10", "--host", box, "-o", "page.json", "-o", "page.txt")
    page = json.loads(Path("page.json").read_text())
    assert page["manual"]["code"] == "MEM10" and page["verdict"]["verdict"] == "finding"
    assert "This machine" in Path("page.txt").read_text()


def test_an_unknown_code_names_the_nearest(run_cli) -> None:
    code, out, err = run_cli("explain", "MEM99")
    assert (code, out) == (2, "")
    assert "no check `MEM99`; nearest: MEM" in err and "hint: wellfed explain MEM" in err


# -- configuration ------------------------------------------------------------------------------------------


def test_the_intents_of_the_command_line_are_those_of_the_checks() -> None:
    assert cli_config.INTENTS == INTENTS


def test_the_nearest_folder_with_a_configuration_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "wellfed.toml").write_text("price = 2.5\n")
    assert read_config(inner) == Config(price=2.5, ignore={}, source=tmp_path / "wellfed.toml")
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert read_config(inner).price == 2.5, "a project file without our table is passed over"
    (tmp_path / "a" / "pyproject.toml").write_text('[tool.wellfed]\nintent = "benchmark"\n')
    assert read_config(inner).intent == "benchmark"
    (tmp_path / "a" / "wellfed.toml").write_text('[ignore]\nCPU01 = " agreed "\n')
    assert read_config(inner).ignore == {"CPU01": "agreed"}, "wellfed.toml before pyproject.toml"


def test_no_file_is_no_configuration(tmp_path: Path) -> None:
    assert read_config(tmp_path).ignore == {}


@pytest.mark.parametrize(
    ("text", "says", "hint"),
    [
        ("intnet = 'training'", "did you mean `intent`", "known keys"),
        ("intent = 'knitting'", "no intent 'knitting'", "training"),
        ("intent = 3", "no intent 3", "training"),
        ("price = 'much'", "is no number", "price = 2.5"),
        ("price = true", "is no number", "price = 2.5"),
        ("price = -1", "is no number", "price = 2.5"),
        ("price = nan", "is no number", "price = 2.5"),
        ("ignore = ['CPU01']", "no table", "[ignore]"),
        ("[ignore]\nCPU01 = ''", "CPU01 has no reason", "CPU01 ="),
        ("[ignore]\nCPU01 = true", "CPU01 has no reason", "CPU01 ="),
        ("[ignore", "not TOML", None),
        ("\xff", "not TOML", None),
    ],
)
def test_a_wrong_configuration_is_refused_in_words(
    run_cli, box: Path, text: str, says: str, hint: str | None
) -> None:
    Path("wellfed.toml").write_bytes(text.encode("latin-1"))
    code, out, err = run_cli("check", "--host", box)
    assert (code, out) == (2, "")
    assert err.startswith("error: wellfed.toml: ") and says in err
    assert hint is None or hint in err


def test_a_broken_project_file_that_does_not_mention_us_is_none_of_our_business(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[broken")
    assert read_config(tmp_path).source != tmp_path / "pyproject.toml"
    (tmp_path / "pyproject.toml").write_text("[tool.wellfed")
    with pytest.raises(WellfedError, match="not TOML"):
        read_config(tmp_path)


def test_a_giant_configuration_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "wellfed.toml").write_text("#" * (cli_config.MAX_BYTES + 1))
    with pytest.raises(WellfedError, match="256 KiB"):
        read_config(tmp_path)


def test_a_folder_of_that_name_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "wellfed.toml").mkdir()
    assert read_config(tmp_path).ignore == {}


@pytest.mark.parametrize(("asked", "nearest"), [("T", "T001"), ("NUMA", "NUMA01"), ("data-wai", "T110")])
def test_the_nearest_check_is_one_that_was_meant(run_cli, asked: str, nearest: str) -> None:
    _, _, err = run_cli("explain", asked)
    assert f"hint: wellfed explain {nearest}" in err
