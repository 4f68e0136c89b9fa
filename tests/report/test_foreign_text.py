"""What a machine or a file said can't steer the terminal, also in the pages of `explain` and `inspect KEY`."""

from wellfed.check import manual as page_of
from wellfed.model import Evidence, Fact, Verdict
from wellfed.report import facts, manual

EVIL = "x\x1b]0;owned\x07\u202e\nnext"


def harmless(text: str) -> bool:
    return not set(text.replace("\n", "")) & set("\x1b\x07\u202e") and "\\x1b]0;owned\\x07" in text


def test_the_page_of_a_check_escapes_the_evidence() -> None:
    evidence = (Evidence(source=EVIL, at=EVIL, text=EVIL),)
    verdict = Verdict(code="CPU07", name="x", verdict="finding", message=EVIL, evidence=evidence)
    shown = manual.render(page_of("CPU07"), verdict, width=80, color=False)
    assert harmless(shown) and shown.count("owned") == 4
    assert "\nnext" not in shown, "no line of its own to pretend with"


def test_facts_escape_values_sources_and_reasons() -> None:
    seen = Fact(key="kernel.release", value=EVIL, source=EVIL, detail=EVIL)
    hidden = Fact(key="kernel.x", value=None, source="/proc/x", status="error", detail=EVIL)
    shown = facts.render({"kernel.release": seen, "kernel.x": hidden}, width=80)
    assert harmless(shown) and shown.count("owned") == 4
    assert "\nnext" not in shown


def test_colour_is_ours_alone() -> None:
    assert "\x1b[1mCPU07" in manual.render(page_of("CPU07"), None, width=80, color=True)
