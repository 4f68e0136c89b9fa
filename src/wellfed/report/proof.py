"""The words for what a measured change was worth."""

from wellfed.model.proof import Effect, Proof

_WORDS = {
    "better": "better",
    "worse": "harmful here",
    "none": "no effect here",
    "noisy": "not decided, the machine is too noisy",
}


def effect_text(effect: Effect) -> str:
    """`better: x0.66 (x0.63 to x0.70, 8 quadruples)`: the cost with the change over the cost without."""
    within = "too few to tell" if effect.low is None else f"x{effect.low:.2f} to x{effect.high:.2f}"
    return f"{_WORDS[effect.verdict]}: x{effect.ratio:.2f} ({within}, {effect.n} quadruples)"


def proof_text(proof: Proof) -> str:
    """One line on what was measured and what became of the change."""
    if proof.effect is None:
        return proof.note or proof.outcome
    cost = f"{proof.measured_by} {proof.before:.3g} -> {proof.after:.3g} {proof.unit}"
    note = f"; {proof.note}" if proof.note else ""
    return f"{effect_text(proof.effect)}; {cost}{note}"
