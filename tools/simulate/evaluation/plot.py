"""The ablations as a picture: an SVG of one panel a pair, no script, no font of its own, for light
and dark. Pure.

A panel: work of the low task to the right, slowdown of the high one upwards, the steps joined in
their order. Later steps are smaller, so that steps that fall together show as rings. What is above
the panel is drawn at its edge with its value.
"""

from evaluation import bars
from xml.sax.saxutils import escape

_COLUMNS = 5
_PANEL = (170, 120)            # the plotted field
_LEFT, _TOP = 50, 34           # of a panel's cell, for labels
_CELL = (_LEFT + _PANEL[0] + 16, _TOP + _PANEL[1] + 44)
_HEAD = 78
_MOST = 4 * bars.MEAN          # slowdown at a panel's upper edge
_COLOURS = ("#8c8c8c", "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#b3a100")
_STYLE = """
  svg { --paper: #ffffff; --ink: #1f2328; --faint: #d0d7de; --bound: #cf222e; }
  @media (prefers-color-scheme: dark) { svg { --paper: #0d1117; --ink: #e6edf3; --faint: #3d444d; --bound: #ff7b72; } }
  text { font: 11px sans-serif; fill: var(--ink); }
  .title { font-size: 16px; font-weight: bold; }
  .name { font-weight: bold; }
  .small { font-size: 9px; }
  .field { fill: none; stroke: var(--faint); }
  .grid { stroke: var(--faint); stroke-width: 0.5; }
  .bound { stroke: var(--bound); stroke-width: 1.2; stroke-dasharray: 5 3; }
  .bound-text { fill: var(--bound); font-size: 9px; }
  .way { fill: none; stroke: var(--ink); stroke-opacity: 0.35; stroke-width: 1; }
"""


def grid(found, steps):
    """`found`: {(high, low): {step: figures}}; `steps`: their names, in order."""
    columns = min(_COLUMNS, max(3, len(found)))
    rows = -(-len(found) // columns)
    width, height = columns * _CELL[0] + 10, _HEAD + rows * _CELL[1]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
             "<title>Simulated: slowdown of the high task against work of the low task, by step and pair</title>",
             f"<style>{_STYLE}</style>", f'<rect width="{width}" height="{height}" style="fill: var(--paper)"/>',
             '<text class="title" x="12" y="24">Simulated: what each part of guarded adds, by pair (high beside low)</text>',
             *_legend(steps)]
    for i, ((high, low), by_step) in enumerate(found.items()):
        x, y = (i % columns) * _CELL[0] + _LEFT, _HEAD + (i // columns) * _CELL[1] + _TOP
        parts += _panel(x, y, f"{high} beside {low}", by_step, steps)
    return "\n".join(parts + ["</svg>"]) + "\n"


def _radius(step, count):
    return 3.0 + 1.1 * (count - 1 - step)


def _dot(x, y, step, count):
    return (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_radius(step, count):.1f}" fill="{_COLOURS[step % len(_COLOURS)]}" '
            'style="stroke: var(--paper)" stroke-width="0.8"/>')


def _legend(steps):
    parts, x = [], 20
    for i, name in enumerate(steps):
        parts += [_dot(x, 46, i, len(steps)), f'<text x="{x + 13}" y="50">{escape(name)}</text>']
        x += 32 + 7 * len(name)
    return parts + [f'<line class="bound" x1="{x}" y1="46" x2="{x + 26}" y2="46"/>',
                    f'<text x="{x + 32}" y="50">the bound, {100 * bars.MEAN:g} % in the mean</text>']


def _panel(x, y, name, by_step, steps):
    width, height = _PANEL

    def right(low):
        return x + width * min(max(low, 0.0), 1.0)

    def up(slowdown):
        return y + height * (1 - min(max(slowdown, 0.0), _MOST) / _MOST)

    parts = [f'<text class="name" x="{x}" y="{y - 14}">{escape(name)}</text>',
             f'<rect class="field" x="{x}" y="{y}" width="{width}" height="{height}"/>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts += [f'<line class="grid" x1="{right(share):.1f}" y1="{y}" x2="{right(share):.1f}" y2="{y + height}"/>',
                  f'<text class="small" x="{right(share):.1f}" y="{y + height + 16}" text-anchor="middle">{share:g}</text>']
    for percent in range(0, round(100 * _MOST) + 1, 3):
        parts += [f'<line class="grid" x1="{x}" y1="{up(percent / 100):.1f}" x2="{x + width}" y2="{up(percent / 100):.1f}"/>',
                  f'<text class="small" x="{x - 8}" y="{up(percent / 100) + 3:.1f}" text-anchor="end">{percent} %</text>']
    parts += [f'<line class="bound" x1="{x}" y1="{up(bars.MEAN):.1f}" x2="{x + width}" y2="{up(bars.MEAN):.1f}"/>',
              f'<text class="small" x="{x + width / 2}" y="{y + height + 28}" text-anchor="middle">low: work against alone (simulated)</text>',
              f'<text class="small" transform="translate({x - 36} {y + height / 2}) rotate(-90)" text-anchor="middle">high: slowdown</text>']
    points = [(i, one["low"] or 0.0, one["mean"] - 1) for i, step in enumerate(steps)
              if (one := by_step.get(step)) is not None and bars.lost(one) is not None]
    parts.append(f'<polyline class="way" points="{" ".join(f"{right(low):.1f},{up(slow):.1f}" for _, low, slow in points)}"/>')
    over = [point for point in points if point[2] > _MOST]
    for i, low, slow in points:
        parts.append(_dot(right(low), up(slow), i, len(steps)))
    for n, (_, low, slow) in enumerate(sorted(over, key=lambda point: point[1])):
        anchor = "end" if right(low) > x + width / 2 else "start"
        parts.append(f'<text class="small" x="{right(low) + (-9 if anchor == "end" else 9):.1f}" y="{y + 10 + 10 * n}" '
                     f'text-anchor="{anchor}">&#8593; {100 * slow:.0f} %</text>')
    return parts
