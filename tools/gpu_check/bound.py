"""Did a policy keep the bound that `guarded` is told when nothing else is said? Of the rows of `pairs.measure`. Pure."""

from gpu_check.figures import shown
from gpu_check.verdict import UNDECIDED

# guarded's preset: at most so much slower in the mean and at p99.
MEAN, P99 = 1.03, 1.05
# Of fewer iterations the hundredth is no p99.
LEAST_ITERATIONS = 100
ALONE = "alone under lull"


def _high(rows, how):
    return next((row for row in rows if row["how"] == how and row["role"] == "high"), {})


def _low(rows, how):
    return next((row for row in rows if row["how"] == how and row["role"] == "low"), {})


def unsteadiness(means):
    """By how much the program alone differs from window to window: the largest mean over the least, less one."""
    means = [mean for mean in means if mean]
    return max(means) / min(means) - 1 if means else 0.0


def verdict(rows, policy):
    """(answer, what was seen) of the important program under `policy`, against itself alone under lull in the same rounds."""
    row, alone = _high(rows, f"lull: {policy}"), _high(rows, ALONE)
    over = row.get("over_alone_under_lull", {})
    if over.get("mean") is None or over.get("p99") is None:
        return UNDECIDED, f"{policy}: no iteration to judge by"
    low = _low(rows, f"lull: {policy}").get("throughput")
    seen = (f"{policy}: mean {shown(over['mean'])}x, p99 {shown(over['p99'])}x of alone, the other at {shown(low)} of its speed")
    if row["count"] < LEAST_ITERATIONS:
        return UNDECIDED, f"{seen}; of {row['count']} iterations only"
    if over["mean"] <= MEAN and over["p99"] <= P99:
        return "yes", seen
    if (noise := unsteadiness(alone.get("window_means", []))) > MEAN - 1:
        return UNDECIDED, f"{seen}; alone it differs by {noise:.1%} from window to window itself"
    return "no", seen


def sentence(judged):
    """{policy: verdict} in one line, and what follows."""
    said = "; ".join(seen for _, seen in judged.values()) + "."
    answer = judged["guarded"][0]
    if answer == "yes":
        return answer, said + " guarded's promise holds on this pair."
    if answer == "no":
        return answer, said + " guarded breaks its bound here: its decision log, brought back and replayed, has to say why."
    return answer, said
