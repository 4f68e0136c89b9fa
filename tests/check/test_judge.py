"""From outcomes to verdicts: folding, evidence, reasons, order, ignores; and laws over machines of any shape."""

import msgspec
import pytest
from host_cases import CASES, gpus, machine
from hypothesis import given, settings
from hypothesis import strategies as st
from random_machines import hide, whole

from wellfed.check import INTENTS, host_codes, judge_machine, manual, order, require_code, set_aside
from wellfed.check.evaluate import MAX_EVIDENCE, Outcome, evidence_of, fold, gap_of, value_at
from wellfed.check.root_causes import link
from wellfed.model import Case, Fact, Gain, Machine, Verdict, WellfedError, decode_case, encode_case

PAGE = manual("GPU05")


def judged(one: Machine, code: str) -> Verdict:
    return next(verdict for verdict in judge_machine(one) if verdict.code == code)


# -- laws ---------------------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 32), st.sampled_from(INTENTS))
@settings(max_examples=25)
def test_any_machine_is_judged_and_makes_a_case(seed: int, intent: str) -> None:
    verdicts = judge_machine(whole(seed), intent=intent)
    assert sorted(v.code for v in verdicts) == sorted(host_codes())
    for verdict in verdicts:
        assert verdict.message
        assert (verdict.reason is not None) == (verdict.verdict == "not-judged")
        assert len(verdict.evidence) <= MAX_EVIDENCE + 1
    case = Case(verdicts=verdicts)
    assert decode_case(encode_case(case)) == case


@given(st.integers(0, 1 << 32), st.integers(0, 1 << 32), st.sampled_from(INTENTS))
@settings(max_examples=40)
def test_seeing_more_never_turns_a_decided_verdict(seed: int, hidden: int, intent: str) -> None:
    full = whole(seed)
    after = {v.code: v.verdict for v in judge_machine(full, intent=intent)}
    for verdict in judge_machine(hide(full, hidden), intent=intent):
        if verdict.verdict != "not-judged":
            assert verdict.verdict == after[verdict.code], verdict


def test_random_machines_meet_every_verdict() -> None:
    """The laws above would hold of nothing if the machines never led anywhere."""
    met: dict[str, set[str]] = {}
    for seed in range(60):
        for verdict in judge_machine(whole(seed)):
            met.setdefault(verdict.verdict, set()).add(verdict.code)
    assert len(met["finding"]) > 50 and len(met["pass"]) > 50


@pytest.mark.parametrize("intent", INTENTS)
def test_of_nothing_nothing_passes(intent: str) -> None:
    verdicts = judge_machine(Machine(), intent=intent)
    assert {verdict.verdict for verdict in verdicts} == {"not-judged"}


def test_an_intent_that_nobody_knows_is_refused() -> None:
    with pytest.raises(WellfedError, match="no intent") as error:
        judge_machine(Machine(), intent="knitting")
    assert error.value.hint and "training" in error.value.hint


# -- folding ------------------------------------------------------------------------------------------------


def eight(*limits: float | None) -> Machine:
    return machine({"gpus": gpus(*({"power_limit_w": limit, "power_default_w": 700.0} for limit in limits))})


def test_items_fold_into_one_verdict_that_names_the_bad_ones() -> None:
    verdict = judged(eight(700, 450, 700, 450, 700, 700, 700, 300), "GPU05")
    assert verdict.verdict == "finding"
    assert verdict.where == {"gpus": [1, 3, 7]}
    assert verdict.message == "GPU 1, GPU 3: limited to 450 W of 700 W; GPU 7: limited to 300 W of 700 W"
    assert {evidence.at for evidence in verdict.evidence} >= {
        "gpus[1].power_limit_w",
        "gpus[7].power_limit_w",
    }


def test_many_alike_are_counted_and_evidence_has_a_cap() -> None:
    verdict = judged(eight(*[450.0] * 8), "GPU05")
    assert verdict.message == "8 GPUs: limited to 450 W of 700 W"
    assert len(verdict.evidence) == MAX_EVIDENCE + 1
    assert verdict.evidence[-1].text == "and 4 more facts"


def test_one_unseen_item_keeps_the_others_from_passing() -> None:
    verdict = judged(eight(700, None, 700), "GPU05")
    assert (verdict.verdict, verdict.reason) == ("not-judged", "no-fact")
    assert "gpus[1].power_limit_w" in verdict.message and "1 of 3 not judged" in verdict.message


def test_one_bad_item_is_a_finding_whatever_else_was_unseen() -> None:
    verdict = judged(eight(450, None, 700), "GPU05")
    assert verdict.verdict == "finding" and verdict.where == {"gpus": [0]}
    assert verdict.message.endswith("(1 more could not be judged)")


def test_the_worst_severity_counts() -> None:
    outcomes = [Outcome(state="finding", severity=s, message=s) for s in ("info", "error", "warning")]
    assert fold(PAGE, Machine(), outcomes).severity == "error"


def test_a_finding_without_a_published_figure_promises_nothing() -> None:
    verdict = judged(eight(450.0), "GPU05")
    assert verdict.gain == Gain() and verdict.gain.basis == "none"
    assert judged(machine(CASES["NUMA01"].bad), "NUMA01").gain == manual("NUMA01").gain


# -- why not, and from where --------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["missing", "denied", "unsupported", "error"])
def test_the_reason_is_the_gaps(status: str) -> None:
    one = msgspec.structs.replace(
        machine({}),
        facts={"memory.thp_enabled": Fact(key="memory.thp_enabled", source="/sys/x", status=status)},
        gaps={"memory.thp_enabled": f"{status}: `/sys/x` (why)"},
    )
    verdict = judged(one, "MEM01")
    assert (verdict.verdict, verdict.reason) == ("not-judged", status)
    assert verdict.message == f"could not see `memory.thp_enabled`: {status}: `/sys/x` (why)"
    assert verdict.evidence[0].source == "/sys/x"


def test_the_gap_of_what_holds_a_field_explains_the_field() -> None:
    one = Machine(
        gaps={"gpus": "missing: `NVML`", "kernel.sysctls[vm.x]": "denied: `/proc`", "readers.gpu": "error"}
    )
    assert gap_of(one, "gpus[3].ecc") == "missing: `NVML`"
    assert gap_of(one, "kernel.sysctls[vm.x]") == "denied: `/proc`"
    assert gap_of(one, "cpu.boost") is None
    assert judged(one, "GPU05").reason == "missing"


def test_a_file_that_is_not_there_is_no_blindness_where_the_check_says_so() -> None:
    fact = Fact(key="cpu.platform_profile", source="/sys/firmware/acpi/platform_profile", status="missing")
    gaps = {"cpu.platform_profile": "missing: `/sys/firmware/acpi/platform_profile`"}
    one = msgspec.structs.replace(machine({}), facts={fact.key: fact}, gaps=gaps)
    assert judged(one, "CPU19").reason == "not-applicable"
    denied = msgspec.structs.replace(fact, status="denied")
    assert judged(msgspec.structs.replace(one, facts={fact.key: denied}), "CPU19").reason == "missing"


def test_evidence_can_be_followed_home() -> None:
    raw = "always [madvise] never"
    source = "/sys/kernel/mm/transparent_hugepage/enabled"
    one = msgspec.structs.replace(
        machine({"memory": {"thp_enabled": "madvise"}, "cpu": {"allowed": [0, 1, 2]}}),
        facts={
            "memory.thp_enabled": Fact(key="memory.thp_enabled", value="madvise", source=source, raw=raw),
            "cpu.allowed": Fact(key="cpu.allowed", value=[0, 1, 2], source="/proc/self/status", raw="a\nb"),
            "gpus": Fact(key="gpus", value=[], source="/sys/bus/pci"),
        },
    )
    seen = evidence_of(one, "memory.thp_enabled")
    assert (seen.source, seen.at, seen.text) == (source, "memory.thp_enabled", raw)
    assert evidence_of(one, "cpu.allowed").text == "0, 1, 2", "a long text gives way to the value"
    assert evidence_of(one, "gpus").text == "none"
    assert evidence_of(one, "disks").text == "not seen"
    assert evidence_of(one, "gpus[0].name").source == "/sys/bus/pci"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("gpus[1].power_limit_w", 450.0),
        ("kernel.sysctls[vm.swappiness]", "60"),
        ("gpus[9].name", None),
        ("kernel.sysctls[vm.other]", None),
        ("cpu.nothing", None),
        ("nothing[0][1]", None),
        ("cpu.hypervisor", "none"),
    ],
)
def test_values_are_found_by_path(path: str, value: object) -> None:
    one = machine(
        {"gpus": gpus({}, {"power_limit_w": 450.0}), "kernel": {"sysctls": {"vm.swappiness": "60"}}}
    )
    assert value_at(one, path) == value


# -- root causes --------------------------------------------------------------------------------------------


def finding(code: str, severity: str = "warning", **where: list) -> Verdict:
    return Verdict(code=code, name=code.lower(), verdict="finding", severity=severity, where=where)


def test_a_symptom_carries_its_cause_and_stands_after_it() -> None:
    slow, narrow = finding("GPU24", "error", gpus=[3]), finding("PCIE01", "info", gpus=[3])
    linked = order(link([slow, narrow], {"PCIE01": ("GPU24",)}))
    assert [(v.code, v.causes) for v in linked] == [("PCIE01", ()), ("GPU24", ("PCIE01",))]


def test_a_fault_of_one_gpu_explains_nothing_of_another() -> None:
    slow, narrow = finding("GPU24", gpus=[0]), finding("PCIE01", gpus=[3])
    assert all(not verdict.causes for verdict in link([slow, narrow], {"PCIE01": ("GPU24",)}))


def test_a_cause_that_is_not_found_explains_nothing() -> None:
    slow = finding("GPU24", gpus=[0])
    passed = Verdict(code="PCIE01", name="x", verdict="pass")
    assert link([slow, passed], {"PCIE01": ("GPU24",)}) == [slow, passed]


def test_causes_in_a_circle_end() -> None:
    a = msgspec.structs.replace(finding("A"), causes=("B",))
    b = msgspec.structs.replace(finding("B"), causes=("A",))
    assert {verdict.code for verdict in order([a, b])} == {"A", "B"}


@given(
    st.permutations(
        [
            finding("A", "info"),
            finding("B", "error"),
            finding("C"),
            Verdict(code="D", name="d", verdict="pass"),
        ]
    )
)
def test_order_is_by_worth_and_loses_nothing(verdicts: list[Verdict]) -> None:
    assert [verdict.code for verdict in order(verdicts)] == ["B", "C", "A", "D"]


def test_several_verdicts_of_one_code_all_stay() -> None:
    three = [finding("T110", "warning", ranks=[rank]) for rank in range(3)]
    assert sorted(v.where["ranks"][0] for v in order(three)) == [0, 1, 2]


def test_the_narrow_link_comes_before_the_slow_copy_on_a_real_table() -> None:
    from host_cases import ceilings

    link_lost = {"pcie_width": 8, "pcie_width_max": 16, "pcie_gen_max": 5, "c2c": False}
    one = machine({"gpus": gpus(link_lost)})
    verdicts = judge_machine(one, ceilings=ceilings({"h2d": 23.0}))
    places = {v.code: i for i, v in enumerate(verdicts)}
    assert places["PCIE01"] < places["GPU24"]
    assert next(v for v in verdicts if v.code == "GPU24").causes == ("PCIE01",)


# -- ignores and codes --------------------------------------------------------------------------------------


def test_only_findings_are_set_aside_and_with_their_reason() -> None:
    verdicts = (finding("CPU01"), finding("GPU05"), Verdict(code="MEM01", name="x", verdict="pass"))
    kept, ignored, unused = set_aside(verdicts, {"CPU01": "agreed", "MEM01": "old", "NET01": "none"})
    assert [v.code for v in kept] == ["GPU05", "MEM01"]
    assert [(v.code, v.message) for v in ignored] == [("CPU01", "agreed")]
    assert unused == ("MEM01", "NET01")


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("CPU-01", "CPU01"), ("gpu24", "GPU24"), ("NUMA99", "NUMA"), ("", "BIOS01"), ("x" * 999, "BIOS01")],
)
def test_an_unknown_code_names_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(WellfedError) as error:
        require_code(wrong)
    assert (
        near in error.value.message and error.value.hint and error.value.hint.startswith("wellfed explain ")
    )
