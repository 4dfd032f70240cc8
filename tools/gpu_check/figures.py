"""The arithmetic: quantiles, spreads, errors. Pure. Lists may be empty: the answer is then None."""

import math


def quantile(values, q):
    """By linear interpolation between the two nearest values, as `lull compare` does."""
    ordered = sorted(values)
    if not ordered:
        return None
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def median(values):
    return quantile(values, 0.5)


def mean(values):
    return sum(values) / len(values) if values else None


def variation(values):
    """Coefficient of variation: standard deviation over mean."""
    middle = mean(values)
    if not middle or len(values) < 2:
        return None
    return math.sqrt(sum((v - middle) ** 2 for v in values) / (len(values) - 1)) / middle


def spread(values):
    """What the report says of a list of times."""
    if not values:
        return {"count": 0}
    return {"count": len(values), "mean": mean(values), "p50": median(values), "p99": quantile(values, 0.99),
            "min": min(values), "max": max(values), "cv": variation(values)}


def median_error(spread):
    """How far the median of as many values may be off, from their p10 and p90 (about two standard errors of a normal
    sample's median); None with fewer than five values."""
    if spread.get("count", 0) < 5:
        return None
    return 2 * 1.25 * (spread["p90"] - spread["p10"]) / 2.56 / math.sqrt(spread["count"])


def median_interval(values):
    """(low, high) that hold the true median with a chance of 95 % or more, whatever the distribution: two of the sorted
    values. None with fewer than six."""
    count, ordered, chance, rank = len(values), sorted(values), 0.0, 0
    while chance + 2 * math.comb(count, rank) / 2 ** count <= 0.05:
        chance += 2 * math.comb(count, rank) / 2 ** count
        rank += 1
    return (ordered[rank - 1], ordered[count - rank]) if rank else None


def ratio(value, base):
    return value / base if value is not None and base else None


def relative_errors(pairs):
    """|ours - theirs| / theirs of (ours, theirs) pairs; a pair without a base is left out."""
    return [abs(ours - theirs) / theirs for ours, theirs in pairs if theirs]


def shown(value, digits=3):
    """A number for a table: enough digits, no more; '-' for what is not known."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, digits - 1 - size)}f}" if size < 6 else f"{value:.{digits}g}"
