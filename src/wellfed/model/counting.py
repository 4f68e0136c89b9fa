"""A count with its noun: what every room that writes a sentence needs."""


def counted(count: float, noun: str, nouns: str | None = None) -> str:
    """`1 step`, `1,516 launches`: `count` rounded to a whole number, the noun in its number. `nouns` is the plural
    where it does not end in a plain s."""
    whole = round(count)
    return f"{whole:,} {noun if whole == 1 else nouns or noun + 's'}"
