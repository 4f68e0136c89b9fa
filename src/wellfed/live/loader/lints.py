"""What is wrong with a loader besides its numbers, from what was seen while it was tuned."""

from wellfed.live.loader.race import Tuned
from wellfed.model.loader import LoaderResult
from wellfed.model.verdict import Verdict


def judge(result: LoaderResult, tuned: Tuned) -> tuple[Verdict, ...]:
    return ()
