"""What a check would set cures what it found: tried out on files that answer as the kernel does, and taken back."""

import re
from pathlib import Path
from typing import Any

import pytest
from cure_cases import faulty, layers, over
from host_cases import CASES, machine
from knob_world import followed, is_file, is_one_knob, knob_of, made, seen, with_setting
from random_machines import hide, whole

from wellfed.apply import engine
from wellfed.apply.journal import Journal
from wellfed.apply.kinds import KINDS
from wellfed.apply.root import Root
from wellfed.check import INTENTS, host_codes, judge_machine, manual
from wellfed.check.changes import INSTRUCTION, changes_of, cures
from wellfed.check.evaluate import judge_entry
from wellfed.check.host.irq import mask
from wellfed.check.table import good_for, tables
from wellfed.host.assemble import look
from wellfed.host.parse import cpu_mask
from wellfed.host.recorded import open_recorded
from wellfed.model import Change, Machine, Verdict, WellfedError
from wellfed.model.base import replace

PAGES = {code: manual(code) for code in host_codes()}
CURED = [code for code in host_codes() if manual(code).change or code in cures()]
TRIALS = [
    pytest.param(code, intent, number, id=f"{code}-{intent}-{number}")
    for code in CURED
    for intent in (manual(code).intents or INTENTS)
    for number in range(len(faulty(code)))
]


def judged(one: Machine, code: str, intent: str) -> Verdict:
    if code in tables():
        return judge_entry(tables()[code], one, intent)
    return next(v for v in judge_machine(one, intent=intent) if v.code == code)


def verdict_on(one: Machine, code: str, intent: str) -> str:
    return judged(one, code, intent).verdict


def plan(one: Machine, code: str, intent: str) -> tuple[Change, ...]:
    return changes_of(one, [judged(one, code, intent)], intent, PAGES)


@pytest.mark.parametrize("code", CURED)
def test_a_check_with_rows_plans_a_change_for_its_own_fault(code: str) -> None:
    intent = (manual(code).intents or INTENTS)[0]
    found = plan(faulty(code)[0], code, intent)
    assert found and all(change.kind != INSTRUCTION for change in found)


@pytest.mark.parametrize("code", CURED)
def test_no_row_is_dead(code: str) -> None:
    """Each row alone makes a change on some machine that has the fault."""
    page = PAGES[code]
    for row in page.change:
        pages = {code: replace(page, change=(row,))}
        assert any(
            change.kind == row.kind
            for one in faulty(code)
            for intent in page.intents or INTENTS
            for change in changes_of(one, [judged(one, code, intent)], intent, pages)
        ), row


@pytest.mark.parametrize(("code", "intent", "number"), TRIALS)
def test_the_fault_is_cured_and_the_cure_comes_off(
    code: str, intent: str, number: int, tmp_path: Path
) -> None:
    told = faulty(code)[number]
    root, fields = made(tmp_path, told)
    before = seen(root, told, fields)
    if verdict_on(told, code, intent) != "finding":
        assert verdict_on(before, code, intent) != "finding"
        return
    assert verdict_on(before, code, intent) == "finding"
    todo = plan(before, code, intent)
    assert [what(c) for c in todo] == [what(c) for c in plan(told, code, intent)]
    todo = tuple(change for change in todo if change.kind != INSTRUCTION)
    journal = Journal(root)
    files = contents(tmp_path)
    outcomes = engine.apply(journal, [c for c in todo if is_file(c)], CALM)
    assert all(one.outcome in ("applied", "already") for one in outcomes), outcomes
    assert not any(is_file(c) for c in todo) or any(one.outcome == "applied" for one in outcomes)
    after = followed(seen(root, told, fields))
    for change in todo:
        if not is_file(change):
            after = with_setting(after, change)
    assert verdict_on(after, code, intent) == "pass" and plan(after, code, intent) == ()
    engine.undo(journal)
    assert contents(tmp_path) == files
    assert seen(root, told, fields) == before


@pytest.mark.parametrize("intent", INTENTS)
def test_a_machine_with_much_amiss_is_cured_at_once(intent: str, tmp_path: Path) -> None:
    """Faults are laid one over the other as long as all those before can still be cured; then all is changed in one
    transaction, in the order of the kinds, and taken back in one."""
    layer: dict[str, Any] = {}
    faults: list[str] = []
    for code in CURED:
        for more in layers(code):
            one = over(layer, more)
            if all(curable(machine(one), other, intent) for other in (*faults, code)):
                layer, faults = one, [*faults, code]
                break
    told = machine(layer)
    root, fields = made(tmp_path, told)
    before, files = seen(root, told, fields), contents(tmp_path)
    verdicts = [judged(before, code, intent) for code in faults]
    todo = [c for c in changes_of(before, verdicts, intent, PAGES) if c.kind != INSTRUCTION]
    journal = Journal(root)
    outcomes = engine.apply(journal, [c for c in todo if is_file(c)], CALM)
    assert {one.outcome for one in outcomes} <= {"applied", "already"} and len(outcomes) > 20
    after = followed(seen(root, told, fields))
    for change in todo:
        if not is_file(change):
            after = with_setting(after, change)
    assert {code: verdict_on(after, code, intent) for code in faults} == dict.fromkeys(faults, "pass")
    engine.undo(journal)
    assert contents(tmp_path) == files


def curable(one: Machine, code: str, intent: str) -> bool:
    found = plan(one, code, intent)
    return bool(found) and all(change.kind != INSTRUCTION for change in found)


def what(change: Change) -> tuple[str, str, str]:
    return change.kind, change.target, change.new


class Calm:
    """A kind that says of nothing that it may cut the network, which would ask for a clock that undoes it."""

    def __init__(self, kind: object) -> None:
        self.kind = kind

    def __getattr__(self, name: str) -> object:
        return getattr(self.kind, name)

    def cuts_network(self, target: str) -> bool:
        return False


CALM: Any = {name: Calm(kind) for name, kind in KINDS.items()}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for top in ("proc", "sys")
        for path in sorted((folder / top).rglob("*"))
        if path.is_file()
    }


@pytest.mark.corpus
def test_laws_hold_on_real_machines(corpus: Path, tmp_path: Path) -> None:
    """What would be set on recorded machines is there to be set, and no two checks disagree about it."""
    (tmp_path / "sys").mkdir()
    (tmp_path / "proc/sys").mkdir(parents=True)
    root, counted = Root(tmp_path), 0
    recorded = sorted((corpus / "host").rglob("*.tar.*"))
    for path in recorded[:: max(1, len(recorded) // 25)]:
        try:
            one = look(open_recorded(str(path)))
        except WellfedError:
            continue  # CPUID dumps and the like hold no files
        for intent in INTENTS:
            changes = real(plans(one, intent))
            disagree(changes)
            for change in changes:
                KINDS[change.kind].expand(root, change.target)
                counted += 1
    assert counted > 20


# -- laws of all plans on machines of every shape -----------------------------------------------------------

MACHINES = [whole(seed) for seed in range(30)] + [hide(whole(seed), seed) for seed in range(30, 45)]


def plans(one: Machine, intent: str) -> list[tuple[str, tuple[Change, ...]]]:
    """Each check's own plan, nothing taken away for being there twice."""
    return [(code, plan(one, code, intent)) for code in CURED]


@pytest.fixture(scope="module")
def everything() -> list[tuple[Machine, str, list[tuple[str, tuple[Change, ...]]]]]:
    return [(one, intent, plans(one, intent)) for one in MACHINES for intent in INTENTS]


def real(found: list[tuple[str, tuple[Change, ...]]]) -> list[Change]:
    return [change for _, several in found for change in several if change.kind != INSTRUCTION]


def test_every_target_is_one_that_its_kind_takes(everything: list, tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "proc/sys").mkdir(parents=True)
    root, planned = Root(tmp_path), set()
    for _, _, found in everything:
        for change in real(found):
            KINDS[change.kind].expand(root, change.target)
            KINDS[change.kind].order(change.target)
            assert "\n" not in change.target and change.new.strip()
            planned.add(change.code)
    assert len(planned) > len(CURED) // 2


def disagree(changes: list[Change]) -> None:
    """Raises AssertionError when two changes want one knob to be different."""
    knobs = [(knob_of(change), change) for change in changes]
    for index, (knob, change) in enumerate(knobs):
        for other, another in knobs[:index]:
            assert change.new == another.new or not is_one_knob(knob, other), (change, another)


def test_two_checks_never_want_one_knob_to_be_different(everything: list) -> None:
    for _, _, found in everything:
        disagree(real(found))


def test_a_disagreement_would_be_seen() -> None:
    def one(kind: str, target: str, new: str) -> Change:
        return Change(code="X", kind=kind, target=target, new=new, restore="")

    for pair in (
        (
            one("thp", "enabled", "always"),
            one("sysfs", "/sys/kernel/mm/transparent_hugepage/enabled", "never"),
        ),
        (one("governor", "policy*", "performance"), one("governor", "policy3", "powersave")),
        (one("sysctl", "vm.dirty_bytes", "1"), one("sysctl", "vm.dirty_ratio", "2")),
        (one("sysctl", "vm.swappiness", "1"), one("sysctl", "vm/swappiness", "2")),
    ):
        with pytest.raises(AssertionError):
            disagree(list(pair))


UP = {"name": "ens1", "is_physical": True, "state": "up", "speed_mbps": 100_000, "is_default_route": False}


def test_one_adapter_may_be_the_matter_of_two_checks() -> None:
    ports = [
        {
            "device": "mlx5_0",
            "port": 1,
            "state": "ACTIVE",
            "link_layer": "Ethernet",
            "netdev": "ens1",
            "active_mtu": 1024,
        }
    ]
    one = machine({"rdma": ports, "nics": [{**UP, "mtu": 1500}]})
    verdicts = [v for v in judge_machine(one) if v.code in ("NET01", "RDMA07")]
    assert [v.verdict for v in verdicts] == ["finding"] * 2
    assert len({(c.target, c.new) for v in verdicts for c in changes_of(one, [v], "training", PAGES)}) == 1
    assert len(changes_of(one, verdicts, "training", PAGES)) == 1


def test_plans_differ_by_intent_only_where_what_is_good_does(everything: list) -> None:
    by_machine: dict[int, dict[str, dict[str, tuple[Change, ...]]]] = {}
    for one, intent, found in everything:
        by_machine.setdefault(id(one), {})[intent] = dict(found)
    for of in by_machine.values():
        for code in CURED:
            for a in INTENTS:
                for b in INTENTS:
                    mine, theirs = of[a].get(code), of[b].get(code)
                    if not mine or not theirs:
                        continue
                    same_good = code not in tables() or good_for(tables()[code].entry, a) == good_for(
                        tables()[code].entry, b
                    )
                    if same_good:
                        assert [what(c) for c in mine] == [what(c) for c in theirs], code


def test_nothing_of_a_users_home_is_changed(everything: list) -> None:
    for _, _, found in everything:
        for change in real(found):
            assert not re.search(r"/home/|/root|~", f"{change.target} {change.new}"), change


HOST_WIDE = ("sysfs", "thp", "hugepages", "governor", "epp", "block", "nvml", "mount", "hold")


def test_a_container_sets_only_what_it_can_reach(everything: list) -> None:
    """Of the host's knobs nothing where they are read-only; of its own network what is writable."""
    reached = 0
    for one, intent, _ in everything[::4]:
        box = replace(
            one.container,
            kind="docker",
            proc_sys_writable=False,
            sys_writable=False,
            net_sys_writable=True,
            capabilities=(),
        )
        for change in real(plans(replace(one, container=box), intent)):
            assert change.kind not in HOST_WIDE and change.kind != "ethtool", change
            assert change.kind != "sysctl" or change.target.startswith("net."), change
            reached += change.kind == "sysctl"
    assert reached


def test_unwritten_rights_are_none() -> None:
    box = {"container": {"kind": "docker"}}
    swapping = machine({**CASES["MEM07"].bad, **box})
    assert [c.kind for c in plan(swapping, "MEM07", "training")] == [INSTRUCTION]
    writable = machine({**CASES["MEM07"].bad, "container": {"kind": "docker", "proc_sys_writable": True}})
    assert [(c.kind, c.risk) for c in plan(writable, "MEM07", "training")] == [("sysctl", "unsafe")]
    for more, risk in (({"net_sys_writable": True}, "safe"), ({"proc_sys_writable": True}, "unsafe")):
        polling = machine({**CASES["IRQ07"].bad, "container": {"kind": "docker", **more}})
        assert [(c.kind, c.risk) for c in plan(polling, "IRQ07", "training")] == [("sysctl", risk)] * 2


def test_names_that_are_no_names_stay_with_people() -> None:
    for name in ("..", "a/b", "a b", "*", ""):
        sick = machine({"disks": [{"name": name, "is_virtual": False, "read_ahead_kb": 16}]})
        assert [c.kind for c in plan(sick, "STO03", "training")] == [INSTRUCTION], name


def irqs(**more: Any) -> list[str]:
    one = machine(over(layers("IRQ01")[0], more))
    return [f"{c.kind} {c.new}" if c.kind != INSTRUCTION else c.kind for c in plan(one, "IRQ01", "training")]


def test_interrupts_go_near_but_not_to_isolated_cpus_nor_against_a_balancer() -> None:
    assert irqs() == ["irq_affinity 4,6,7"] * 4
    assert irqs(cpu={"isolated": []}) == ["irq_affinity 4,5,6,7"] * 4
    assert irqs(cpu={"isolated": [4, 5, 6, 7]}) == [INSTRUCTION]
    assert irqs(kernel={"active_services": ["irqbalance"]}) == [INSTRUCTION]


@pytest.mark.parametrize(
    ("cpus", "text"),
    [([0], "00000001"), ([31, 32], "00000001,80000000"), ([95], "80000000,00000000,00000000")],
)
def test_masks_are_written_as_the_kernel_prints_them(cpus: list[int], text: str) -> None:
    assert mask(cpus) == text and cpu_mask(text) == tuple(cpus)


def test_half_a_cure_is_none() -> None:
    both = over(layers("IRQ05")[0], {"kernel": {"default_irq_affinity": [0, 2]}})
    assert [c.kind for c in plan(machine(both), "IRQ05", "training")] == [INSTRUCTION]


def test_what_is_the_hosts_of_a_virtual_gpu_stays_with_people() -> None:
    for code in ("GPU02", "GPU05", "GPU15"):
        layer = over(layers(code)[0], {"gpus": [{"virtualization": "vgpu"}]})
        assert [c.kind for c in plan(machine(layer), code, "training")] == [INSTRUCTION], code


def test_an_item_without_a_row_is_told() -> None:
    """One adapter carries the default route, the other does not: one change, and the words for the other."""
    nics = [
        {
            "name": "ens1",
            "is_physical": True,
            "state": "up",
            "speed_mbps": 100000,
            "mtu": 1500,
            "is_default_route": uplink,
        }
        for uplink in (True, False)
    ]
    nics[1]["name"] = "ens2"
    found = plan(machine({"nics": nics}), "NET01", "training")
    assert [(c.kind, c.target) for c in found] == [
        ("sysfs", "/sys/class/net/ens2/mtu"),
        (INSTRUCTION, "small-mtu"),
    ]


def test_what_a_mount_cannot_switch_stays_with_people() -> None:
    def kinds(path: str, *options: str) -> list[str]:
        one = machine(
            {"mounts": [{"path": path, "source": "dev-1", "fs": "ext4", "options": ["rw", *options]}]}
        )
        return [c.kind for c in plan(one, "STO09", "training")]

    assert kinds("/data") == ["mount"]
    assert kinds("/data", "relatime", "discard") == [INSTRUCTION]
    assert kinds("/home/someone") == [INSTRUCTION]


@pytest.mark.parametrize(
    ("buffer", "speed", "kinds"),
    [
        ("4096 131072 6291456", 100_000, ["sysctl"]),
        ("4096 262144 6291456", 100_000, [INSTRUCTION]),
        ("4096 131072 67108864", 800_000, [INSTRUCTION]),
    ],
)
def test_own_buffers_are_kept_and_none_becomes_smaller(buffer: str, speed: int, kinds: list[str]) -> None:
    sysctls = {"net.ipv4.tcp_rmem": buffer, "net.ipv4.tcp_wmem": "4096 16384 1073741824"}
    nics = [{"name": "ens1", "is_physical": True, "state": "up", "speed_mbps": speed}]
    one = machine({"nics": nics, "kernel": {"sysctls": sysctls}})
    assert [c.kind for c in plan(one, "NET02", "training")] == kinds


RAISED = ("fs.", "net.", "vm.max_map_count", "vm.min_free_kbytes", "kernel.pid_max")


def test_a_limit_is_never_lowered_by_a_check_that_finds_it_small(everything: list) -> None:
    limits = re.compile(
        r"fs\.|vm\.(max_map_count|min_free_kbytes)|kernel\.pid_max|net\.(core\.(somax|netdev_max)|.*gc_thresh|.*conntrack_max|.*backlog)"
    )
    compared = 0
    for one, _, found in everything:
        for change in real(found):
            if change.kind == "sysctl" and limits.match(change.target):
                old = one.kernel.sysctls[change.target]
                assert int(old) < int(change.new), change
                compared += 1
    assert compared
