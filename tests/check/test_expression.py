"""The expression language: three-valued logic, and nothing outside it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.check.expression import (
    MAX_CHARS,
    ExpressionError,
    Scope,
    Unknown,
    evaluate,
    fill,
    judge,
    parse,
    show,
    version,
)
from wellfed.model import Fact, Machine
from wellfed.model.devices import Disk, Gpu
from wellfed.model.environment import REDACTED
from wellfed.model.machine import Cpu, Kernel, Memory, NumaNode

MACHINE = Machine(
    cpu=Cpu(logical=8, boost=True, governors=("performance", "powersave"), steal_pct=0.5, allowed=(0, 1)),
    memory=Memory(total_bytes=1 << 34, thp_enabled="madvise"),
    kernel=Kernel(release="6.8.0-45-generic", sysctls={"vm.swappiness": "60", "fs.bad": "many"}),
    gpus=(Gpu(index=0, name="NVIDIA H200", pcie_width=16), Gpu(index=1, pcie_width=8)),
    numa=(NumaNode(id=0, cpus=(0, 1)), NumaNode(id=1)),
    environment={"OMP_NUM_THREADS": "4", "NCCL_ALGO": REDACTED},
)


def ask(text: str, machine: Machine = MACHINE) -> object:
    return evaluate(text, Scope(machine))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cpu.logical", 8),
        ("cpu.logical * 2 - 1", 15),
        ("cpu.logical / 5", 1.6),
        ("7 // 2 + 7 % 2", 4),
        ("-cpu.logical + 9", 1),
        ("cpu.logical == 8 and cpu.boost", True),
        ("1 < cpu.logical <= 8", True),
        ("8 < cpu.logical or not cpu.boost", False),
        ("'powersave' in cpu.governors", True),
        ("memory.thp_enabled not in ('always', 'never')", True),
        ("'dvi' in memory.thp_enabled", True),
        ("kernel.sysctls['vm.swappiness']", "60"),
        ("int(kernel.sysctls['vm.swappiness']) > 10", True),
        ("cpu.governors[1]", "powersave"),
        ("gpus[0].name", "NVIDIA H200"),
        ("len(gpus)", 2),
        ("min(g.pcie_width for g in gpus)", 8),
        ("max(3, cpu.logical)", 8),
        ("sum(1 for n in numa if len(n.cpus) > 0)", 1),
        ("distinct(g.pcie_width for g in gpus)", 2),
        ("list(g.index for g in gpus if g.pcie_width < 16)", (1,)),
        ("version(kernel.release)", (6, 8, 0)),
        ("version(kernel.release) >= (5, 12)", True),
        ("match('h[12]00', gpus[0].name)", True),
        ("lower(gpus[0].name)", "nvidia h200"),
        ("env('OMP_NUM_THREADS')", "4"),
        ("env('CUDA_LAUNCH_BLOCKING')", ""),
        ("env('CUDA_LAUNCH_BLOCKING', '0')", "0"),
        ("settings('OMP_NUM_THREADS', 'KMP_AFFINITY')", "OMP_NUM_THREADS=4"),
        ("settings('KMP_AFFINITY')", "none is set"),
        ("overlap(cpu.allowed, numa[0].cpus)", True),
        ("gib(memory.total_bytes)", 16.0),
        ("percent(1, 8)", 12.5),
        ("1 if cpu.boost else 2", 1),
        ("intent == 'training'", True),
        ("any(g.pcie_width == 8 for g in gpus)", True),
        ("all(g.pcie_width == 8 for g in gpus)", False),
        ("len(values(kernel.sysctls))", 2),
    ],
)
def test_what_is_known_has_its_value(text: str, value: object) -> None:
    assert ask(text) == value


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("cpu.vendor", ("cpu.vendor",)),
        ("cpu.vendor == 'AMD'", ("cpu.vendor",)),
        ("cpu.cores + cpu.packages", ("cpu.cores", "cpu.packages")),
        ("gpus[1].name", ("gpus[1].name",)),
        ("gpus[7].name", ("gpus[7]",)),
        ("kernel.sysctls['vm.dirty_ratio']", ("kernel.sysctls[vm.dirty_ratio]",)),
        ("kernel.mitigations['meltdown']", ("kernel.mitigations[meltdown]",)),
        ("int(kernel.sysctls['fs.bad'])", ("kernel.sysctls[fs.bad]",)),
        ("env('NCCL_ALGO')", ("environment[NCCL_ALGO]",)),
        ("any(g.persistence for g in gpus)", ("gpus[0].persistence", "gpus[1].persistence")),
        ("disks", ("disks",)),
        ("len(disks) > 0", ("disks",)),
        ("all(d.rotational for d in disks)", ("disks",)),
        ("cpu.logical / 0", ()),
        ("max(d for d in cpu.allowed if d > 9)", ()),
        ("cpu.boost if cpu.smt == 'on' else True", ("cpu.smt",)),
        ("(cpu.vendor, 1)", ("cpu.vendor",)),
    ],
)
def test_what_is_unknown_says_which_field_it_lacks(text: str, paths: tuple[str, ...]) -> None:
    assert ask(text) == Unknown(paths=paths)


def test_an_empty_collection_is_empty_only_when_somebody_looked() -> None:
    text = "all(d.rotational for d in disks)"
    unseen = Machine()
    seen = Machine(facts={"disks": Fact(key="disks", value=[], source="/sys/block")})
    failed = Machine(facts={"disks": Fact(key="disks", source="/sys/block", status="denied")})
    assert ask(text, seen) is True
    assert isinstance(ask(text, unseen), Unknown)
    assert isinstance(ask(text, failed), Unknown)
    assert ask("env('OMP_NUM_THREADS', '1')", Machine()) == Unknown(paths=("environment",))
    looked = Machine(facts={"environment": Fact(key="environment", value={}, source="environment")})
    assert ask("env('OMP_NUM_THREADS', '1')", looked) == "1"


# -- Kleene's tables --------------------------------------------------------------------------------------

WORDS = {"cpu.boost": True, "not cpu.boost": False, "cpu.smt == 'on'": None}
AND = {True: (True, False, None), False: (False, False, False), None: (None, False, None)}
OR = {True: (True, True, True), False: (True, False, None), None: (True, None, None)}


def truth(text: str) -> bool | None:
    value = judge(text, Scope(MACHINE))
    return None if isinstance(value, Unknown) else value


@pytest.mark.parametrize(("a", "b"), list(itertools.product(WORDS, WORDS)))
def test_and_or_not_are_kleenes(a: str, b: str) -> None:
    place = [True, False, None].index(WORDS[b])
    assert truth(f"({a}) and ({b})") == AND[WORDS[a]][place]
    assert truth(f"({a}) or ({b})") == OR[WORDS[a]][place]
    assert truth(f"not ({a})") == {True: False, False: True, None: None}[WORDS[a]]


@pytest.mark.parametrize(
    ("rotational", "any_of", "all_of"),
    [
        ((True, None), True, None),
        ((False, None), None, False),
        ((None, None), None, None),
        ((True, True), True, True),
        ((False, False), False, False),
    ],
)
def test_any_and_all_are_long_or_and_long_and(
    rotational: tuple[bool | None, ...], any_of: bool | None, all_of: bool | None
) -> None:
    machine = Machine(disks=tuple(Disk(name=f"d{i}", rotational=r) for i, r in enumerate(rotational)))

    def said(text: str) -> bool | None:
        value = judge(text, Scope(machine))
        return None if isinstance(value, Unknown) else value

    assert said("any(d.rotational for d in disks)") == any_of
    assert said("all(d.rotational for d in disks)") == all_of
    assert said("any(True for d in disks if d.rotational)") == any_of
    assert said("all(False for d in disks if not d.rotational)") == all_of


@st.composite
def formulas(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        field = draw(st.sampled_from(["cpu.cores", "cpu.packages", "cpu.possible"]))
        return f"{field} {draw(st.sampled_from(['<', '>=', '==', '!=']))} {draw(st.integers(0, 2))}"
    a, b = draw(formulas(depth=depth - 1)), draw(formulas(depth=depth - 1))
    shape = draw(
        st.sampled_from(["({a}) and ({b})", "({a}) or ({b})", "not ({a})", "({a}) if ({b}) else ({a})"])
    )
    return shape.format(a=a, b=b)


NUMBERS = st.none() | st.integers(0, 2)


@given(formulas(), NUMBERS, NUMBERS, NUMBERS, st.tuples(*[st.integers(0, 2)] * 3))
def test_filling_in_an_unknown_never_turns_a_decided_truth(
    text: str, cores: int | None, packages: int | None, possible: int | None, fill_in: tuple[int, int, int]
) -> None:
    fields = {"cores": cores, "packages": packages, "possible": possible}
    before = judge(text, Scope(Machine(cpu=Cpu(**fields))))
    full = {k: new if old is None else old for (k, old), new in zip(fields.items(), fill_in, strict=True)}
    after = judge(text, Scope(Machine(cpu=Cpu(**full))))
    assert not isinstance(after, Unknown)
    assert isinstance(before, Unknown) or before == after
    if isinstance(before, Unknown):
        assert before.paths and all(fields[path.removeprefix("cpu.")] is None for path in before.paths)


# -- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hostile",
    [
        "__import__('os').system('true')",
        "cpu.__class__",
        "cpu._private",
        "().__class__.__bases__",
        "open('/etc/passwd')",
        "eval('1')",
        "getattr(cpu, 'logical')",
        "cpu.logical.bit_length()",
        "'a'.format(cpu)",
        "f'{cpu}'",
        "lambda: 1",
        "[g for g in gpus]",
        "{g: 1 for g in gpus}",
        "(x := 1)",
        "9 ** 9 ** 9",
        "1 << 99",
        "10000000000000000000000",
        "1j",
        "None",
        "b'x'",
        "...",
        "cpu.logical is None",
        "gpus[0:1]",
        "gpus[cpu.logical]",
        "any(g for g in gpus for h in gpus)",
        "any(g for g, h in gpus)",
        "any(gpus)",
        "any()",
        "min(*gpus)",
        "max(cpu.logical, key=cpu)",
        "env(cpu.vendor)",
        "match(cpu.vendor, 'x')",
        "match('(', 'x')",
        "match('a\\\\b', 'x')",
        "await cpu",
        "yield",
        "import os",
        "cpu.logical; 1",
        "",
        " ",
        "(",
        "cpu.logical ==",
        "\0",
        "1" * (MAX_CHARS + 1),
        "(" * 500 + ")" * 500,
        " and ".join(["True"] * 150),
    ],
)
def test_nothing_outside_the_language_is_admitted(hostile: str) -> None:
    with pytest.raises(ExpressionError):
        parse(hostile)


@pytest.mark.parametrize(
    "wrong",
    [
        "cpu.nothing",
        "nothing",
        "facts",
        "gaps",
        "cpu.logical and True",
        "not cpu.logical",
        "cpu.logical < 'x'",
        "cpu.logical in 8",
        "'x' + 'y'",
        "'x' * 999999999",
        "True + 1",
        "len(cpu.logical)",
        "sum('x' for g in gpus)",
        "cpu.logical if cpu.logical else 1",
        "any(x for x in cpu.logical)",
        "len(x for x in gpus)",
        "gpus['x']",
        "kernel.sysctls[0]",
    ],
)
def test_a_wrong_type_or_name_is_our_error_not_an_answer(wrong: str) -> None:
    with pytest.raises(ExpressionError):
        judge(wrong, Scope(MACHINE))


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        parse(text)
    except ExpressionError:
        pass


@given(st.text(alphabet="()[]{}.,'\"=<>+-*/%andortifelsgpu0192 ", max_size=60))
def test_any_near_miss_is_evaluated_or_refused(text: str) -> None:
    try:
        ask(text)
    except ExpressionError:
        pass


def test_an_absurdly_large_machine_ends_as_unknown() -> None:
    many = tuple(range(3000))
    machine = Machine(cpu=Cpu(allowed=many, isolated=many))
    text = "any(any(a == b + 9000 for b in cpu.isolated) for a in cpu.allowed)"
    assert isinstance(judge(text, Scope(machine)), Unknown)


# -- sentences --------------------------------------------------------------------------------------------


def test_sentences_are_filled_and_unknown_reads_as_a_question_mark() -> None:
    scope = Scope(MACHINE)
    assert (
        fill("{len(gpus)} GPUs, {cpu.vendor}, {cpu.governors}", scope) == "2 GPUs, ?, performance, powersave"
    )
    assert fill("boost {cpu.boost}", scope) == "boost yes"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        ((), "none"),
        (tuple(range(20)), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more"),
    ],
)
def test_values_are_shown_short(value: object, text: str) -> None:
    assert show(value) == text


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("580.95.05", (580, 95, 5)),
        ("v2.29.3+cuda12", (2, 29, 3)),
        ("6.8.0-45-generic", (6, 8, 0)),
        ("none", None),
    ],
)
def test_versions(text: str, parts: tuple[int, ...] | None) -> None:
    assert version(text) == parts
