"""Dumps of CPUID: shapes of two vendors come back, damaged dumps are refused."""

import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_forms import Shape, dump, intel, zen

from wellfed.host import look, open_host
from wellfed.host.forms.cpuid import read_cpuid
from wellfed.host.stated import StatedHost
from wellfed.model import Machine, WellfedError

SHAPES = st.builds(Shape, st.integers(1, 4), st.integers(1, 9), st.integers(1, 2), st.integers(1, 3)).map(
    lambda shape: shape._replace(caches=min(shape.caches, shape.cores))
)


def machine_of(files: list[tuple[int, str]]) -> Machine:
    return look(StatedHost(origin="x", form="a dump of CPUID", stated=read_cpuid(files)))


@settings(max_examples=60)
@given(SHAPES, st.sampled_from(["levels", "before levels", "zen"]))
def test_shapes_come_back(shape: Shape, kind: str) -> None:
    files = list(zen(shape) if kind == "zen" else intel(shape, levels=kind == "levels"))
    cpu = machine_of(files).cpu
    each = -(-shape.cores // shape.caches)
    assert (cpu.logical, cpu.cores, cpu.packages) == (
        shape.cpus,
        shape.packages * shape.cores,
        shape.packages,
    )
    assert (cpu.threads_per_core, cpu.l3_groups) == (shape.threads, shape.packages * -(-shape.cores // each))
    assert cpu.l3_bytes == (cpu.l3_groups or 0) << 20
    assert cpu.arch == "x86_64"
    assert machine_of(list(reversed(files))).cpu == cpu


def test_a_folder_and_a_tar(tmp_path: Path) -> None:
    folder = dump(tmp_path / "box", zen(Shape(2, 6, 2, 2)))
    with tarfile.open(tmp_path / "box.tar", "w") as tar:
        tar.add(folder, "box")
    for spec in (folder, tmp_path / "box.tar"):
        machine = look(open_host(str(spec)))
        assert (machine.cpu.vendor, machine.cpu.family, machine.cpu.model) == ("AuthenticAMD", 23, 1)
        assert machine.cpu.model_name == "AMD EPYC 0000"
        assert (machine.cpu.logical, machine.cpu.l3_groups) == (24, 4)
        assert "numa" in machine.gaps and machine.numa == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: "", "has no answers"),
        (lambda text: text.splitlines()[0], "no vendor"),
        (lambda text: text.replace("68747541", "78747541"), "no vendor"),
        (lambda text: "\n".join(row for row in text.splitlines() if not row.startswith("1 1 ")), "leaf 1"),
    ],
)
def test_damage_is_refused_in_words(tmp_path: Path, change, words: str) -> None:  # type: ignore[no-untyped-def]
    folder = dump(tmp_path / "box", zen(Shape(1, 4)))
    (folder / "pu3").write_text(change((folder / "pu3").read_text()))
    with pytest.raises(WellfedError, match=words):
        open_host(str(folder))


def test_one_cpu_asked_for_all(tmp_path: Path) -> None:
    folder = dump(tmp_path / "box", zen(Shape(1, 2)))
    (folder / "pu1").write_text((folder / "pu0").read_text())
    with pytest.raises(WellfedError, match="several CPUs have one number"):
        open_host(str(folder))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    folder = dump(tmp_path / "box", zen(Shape(1, 2)))
    (folder / "pu1").unlink()
    (folder / "pu1").symlink_to("/etc/passwd")
    with pytest.raises(WellfedError, match="CPU 1 has no answers"):
        open_host(str(folder))


@given(st.text(alphabet="0123456789abcdef =>\n#", max_size=300))
def test_any_text_is_refused_or_read(text: str) -> None:
    try:
        read_cpuid([(0, "# mask e[abcd]x => e[abcd]x\n" + text)])
    except ValueError:
        pass
