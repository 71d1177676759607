"""Flame graphs as SVG from stacks: text alone, no script, the same bytes each time."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, ROW, MARGIN = 900, 17, 24
_LETTER = 7.0
"""Width of a letter of 11 px in a wide monospaced font: a label stays in its box in a narrower one too."""

_FEWEST_LETTERS = 5
"""A box with room for fewer has no label: its title has the name."""

FLAME = b'<svg data-kind="flame" xmlns="http://www.w3.org/2000/svg"'
"""How the file of a flame graph begins."""

Stacks = Mapping[tuple[str, ...], int]


def stacks_of(lines: Sequence[str], form: str) -> Stacks:
    """Stacks from the outermost frame to the innermost, with their samples."""
    return _of_perf(lines) if form == "perf" else _folded(lines)


def _folded(lines: Sequence[str]) -> Stacks:
    """Lines ``a;b;c 12``, as py-spy writes them with ``--format raw``; other lines are skipped."""
    found: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        match = re.fullmatch(r"(\S.*) (\d{1,15})", line.strip())
        if match is not None and not line.startswith("@@"):
            found[tuple(part.strip() or "?" for part in match[1].split(";"))] += int(match[2])
    return found


def _of_perf(lines: Sequence[str]) -> Stacks:
    """Blocks of ``perf script``: a line with the command, then its frames from the innermost, then an empty line."""
    found: Counter[tuple[str, ...]] = Counter()
    name: str | None = None
    frames: list[str] = []
    for line in [*lines, ""]:
        frame = re.fullmatch(r"\s+[0-9a-f]+ (.+?)(?: \((\S*|.*)\))?", line)
        if not line.strip():
            if name is not None and frames:
                found[(name, *reversed(frames))] += 1
            name, frames = None, []
        elif frame is not None and name is not None:
            frames.append(re.sub(r"\+0x[0-9a-f]+$", "", frame[1]))
        elif not line.startswith((" ", "\t", "@@", "#")):
            # ``python  1234/1240  100.5: 250000 cpu-clock:``: the name may hold spaces, the ids end it.
            head = re.match(r"(.+?)\s+-?\d+(?:/\d+)?\s", line)
            name = head[1].strip() if head is not None else None
            frames = []
    return found


@dataclass
class _Frame:
    name: str
    samples: int = 0
    inner: dict[str, _Frame] = field(default_factory=dict)


def _tree(stacks: Stacks) -> _Frame:
    root = _Frame("all", sum(stacks.values()))
    for stack, samples in stacks.items():
        frame = root
        for name in stack:
            frame = frame.inner.setdefault(name, _Frame(name))
            frame.samples += samples
    return root


def flame_svg(stacks: Stacks, title: str, unit: str, min_share: float) -> bytes:
    """Frames side by side in alphabetical order, callers below callees; the width is the share of samples."""
    root = _tree(stacks)
    boxes: list[tuple[int, float, float, _Frame]] = []
    # A list in place of recursion: stacks can be thousands of frames deep.
    left = [(0, 0.0, root)]
    while left:
        depth, x, frame = left.pop()
        width = WIDTH * frame.samples / root.samples
        boxes.append((depth, x, width, frame))
        for name in sorted(frame.inner):
            inner = frame.inner[name]
            if inner.samples >= min_share * root.samples:
                left.append((depth + 1, x, inner))
            x += WIDTH * inner.samples / root.samples
    boxes.sort(key=lambda box: (box[0], box[1]))
    deepest = max(depth for depth, *_ in boxes)
    height = MARGIN + (deepest + 1) * ROW + 4
    parts = [
        f'{FLAME.decode()} viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="monospace" font-size="11">',
        f"<title>{_xml(title)}</title>",
        f'<text x="4" y="15" fill="#808890" font-size="12">{_xml(title)}: {root.samples:,} {_xml(unit)}</text>',
    ]
    for depth, x, width, frame in boxes:
        y = height - 4 - (depth + 1) * ROW
        share = 100 * frame.samples / root.samples
        about = f"{_xml(frame.name)}: {frame.samples:,} {_xml(unit)}, {share:.1f} %"
        parts.append(
            f'<g><title>{about}</title><rect x="{x:.2f}" y="{y}" width="{max(width - 0.4, 0.1):.2f}" '
            f'height="{ROW - 1}" rx="1" fill="{_colour(frame.name)}"/>{_label(frame.name, x, y, width)}</g>'
        )
    return ("\n".join([*parts, "</svg>"]) + "\n").encode()


def _label(name: str, x: float, y: int, width: float) -> str:
    room = int((width - 6) / _LETTER)
    if room < _FEWEST_LETTERS:
        return ""
    text = name if len(name) <= room else name[: room - 2] + ".."
    return f'<text x="{x + 3:.2f}" y="{y + 12}" fill="#1C2128">{_xml(text)}</text>'


def _colour(name: str) -> str:
    """A warm tone by the name: the same function has the same colour in every graph."""
    draw = zlib.crc32(name.encode("utf-8", "replace"))
    return f"#{205 + draw % 50:02X}{110 + (draw >> 8) % 100:02X}{60 + (draw >> 16) % 40:02X}"


def _xml(text: str) -> str:
    return escape("".join(sign if sign.isprintable() else "?" for sign in text))
