"""Draws by name from a seed: the same seed and names give the same values on every machine and with every
Python. Each value is a hash of its names, so that a parameter that is added changes no other. Pure."""

import dataclasses
import decimal
import hashlib

_EXACT = decimal.Context(prec=12)  # its ln and exp are rounded correctly: no C library decides a digit
ESTIMATE = "[estimate]"


@dataclasses.dataclass(frozen=True)
class Span:
    """From `low` to `high`, each factor as likely as any other (log-uniform), to three digits."""
    low: float
    high: float
    source: str
    whole: bool = True

    def at(self, share):
        """`share`: 0 <= share < 1."""
        low, high = (_EXACT.ln(_EXACT.create_decimal_from_float(float(end))) for end in (self.low, self.high))
        found = _EXACT.exp(_EXACT.add(low, _EXACT.multiply(decimal.Decimal(share), _EXACT.subtract(high, low))))
        found = min(max(float(f"{found:.2e}"), self.low), self.high)
        return round(found) if self.whole else found

    def contains(self, value):
        return self.low <= value <= self.high

    def text(self):
        return f"{self.low:g} to {self.high:g}"


@dataclasses.dataclass(frozen=True)
class OneOf:
    """One of `values`, all as likely."""
    values: tuple
    source: str

    def at(self, share):
        return self.values[int(share * len(self.values))]

    def contains(self, value):
        return value in self.values

    def text(self):
        return ", ".join(getattr(value, "name", str(value)) for value in self.values)


@dataclasses.dataclass(frozen=True)
class Curve:
    """A distribution by its quantiles, ((share, value), ...) from 0 to 1, and straight lines between them."""
    name: str
    quantiles: tuple

    def at(self, share):
        for (before, low), (after, high) in zip(self.quantiles, self.quantiles[1:]):
            if share < after:
                return low + (high - low) * (share - before) / (after - before)
        return self.quantiles[-1][1]


class Draws:
    """What is drawn under one name: draws of its own, and further Draws."""

    def __init__(self, *names):
        self._names = tuple(str(name) for name in names)
        self._hash = hashlib.sha256("".join(f"{name}\0" for name in self._names).encode())

    def of(self, *names):
        return Draws(*self._names, *names)

    def share(self, *names):
        """0 <= share < 1, in steps of 2**-53."""
        found = self._hash.copy()
        found.update("\0".join(map(str, names)).encode())
        return (int.from_bytes(found.digest()[:8], "big") >> 11) / 2.0**53

    def draw(self, parameter, *names):
        return parameter.at(self.share(*names))

    def shuffled(self, values, *names):
        return [value for _, value in sorted(enumerate(values), key=lambda one: self.share(*names, one[0]))]
