"""Draws the packages of src/srpo and their imports: docs/house.svg.

    python scripts/house.py            # write the picture
    python scripts/house.py --check    # fail if the committed picture is not the current one

Rooms stand on floors. A room may import from its own floor and from lower ones, never from a higher one, and no modules
import each other in a circle; ``lint-imports`` checks both, and ``pyproject.toml`` has its rules. An arrow means
"imports". To stay readable the picture leaves out an arrow if a longer way of arrows says the same. Standard library
only, and the same bytes for the same code.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "srpo"
PICTURE = ROOT / "docs" / "house.svg"

FLOORS: tuple[tuple[str, dict[str, tuple[str, ...]]], ...] = (
    (
        "shared by all",
        {
            "ground": (
                *("files", "imports", "inputs", "layout", "machine", "repository", "rewards", "seeds", "text", "watch"),
            )
        },
    ),
    ("the method", {"algorithm": ("algorithm",)}),
    ("questions; the method in one call", {"benchmarks": ("benchmarks",), "functional": ("functional",)}),
    ("what an experiment says", {"experiment": ("experiment",)}),
    ("sampling, model cost, MLflow", {"rollout": ("rollout",), "cost": ("cost",), "tracking": ("tracking",)}),
    ("the toys, a host", {"miniature": ("miniature",), "trl": ("trl",)}),
    ("data and base models", {"sources": ("sources",), "models": ("models",)}),
    ("everything of verl", {"policy": ("policy",)}),
    ("scores of a checkpoint", {"evaluation": ("evaluation",)}),
    ("a run", {"training": ("training",)}),
    ("logs to numbers", {"analysis/results": ("analysis.results", "analysis.outline")}),
    ("numbers to pictures", {"analysis/tables": ("analysis.tables",), "analysis/figures": ("analysis.figures",)}),
    ("the page, checkpoints for others", {"analysis/report": ("analysis",), "publish": ("publish",)}),
    ("before a run", {"plan": ("plan",)}),
    ("called by the workflow", {"workflow": ()}),
    ("command line", {"cli": ("cli", "__main__")}),
)
"""The floors from the lowest to the highest: what each is for, and its rooms with the modules that they hold.

A module belongs to the room that names it or the nearest package around it. Modules directly in ``srpo`` that no
room names belong to ``workflow``.
"""

DEFAULT_ROOM = "workflow"

Arrow = tuple[str, str]
"""A room and another that it imports."""

Centres = dict[str, float]

Modules = dict[str, set[str]]
"""Each module's name, without ``srpo.``, and the modules of the package that it imports."""


# ---------------------------------------------------------------- imports


def modules(source: Path = SOURCE) -> Modules:
    """Every module of the package and what it imports: at its head, within a function, or for type checkers alone."""
    names = {_module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    return {
        name: {found for found in _imports(path, name, names.keys()) if found != name} for name, path in names.items()
    }


def _module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, name: str, known: Iterable[str]) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ["srpo", *filter(None, package.split("."))]
                base = ".".join([*above[: len(above) - node.level + 1], *filter(None, [base])])
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            if target == "srpo" or target.startswith("srpo."):
                yield _nearest(target.removeprefix("srpo").removeprefix("."), known)


def _nearest(dotted: str, known: Iterable[str]) -> str:
    """The module that ``dotted`` names, or the one that defines the name at its end."""
    while dotted and dotted not in known:
        dotted = dotted.rpartition(".")[0]
    return dotted


# ---------------------------------------------------------------- rooms


def rooms() -> dict[str, int]:
    """Each room and its floor, 0 for the lowest."""
    return {room: floor for floor, (_, on_floor) in enumerate(FLOORS) for room in on_floor}


def room_of(module: str) -> str:
    """The room of a module.

    Raises:
        ValueError: if no room holds it.
    """
    holders = {part: room for _, on_floor in FLOORS for room, parts in on_floor.items() for part in parts}
    around = module
    while around:
        if around in holders:
            return holders[around]
        around = around.rpartition(".")[0]
    if "." in module or (SOURCE / module).is_dir():
        raise ValueError(f"{module}: in no room; give it one in scripts/house.py: FLOORS")
    return DEFAULT_ROOM


def arrows(found: Modules) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Pairs of rooms where one imports from the other, with the imports behind it; the root package aside."""
    between = defaultdict(set)
    for module, imported in found.items():
        for other in imported - {""}:
            if module and (pair := (room_of(module), room_of(other)))[0] != pair[1]:
                between[pair].add((module, other))
    return dict(between)


def shortest(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs that no longer way of pairs implies (the transitive reduction)."""
    below = defaultdict(set)
    for source, target in pairs:
        below[source].add(target)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            for target in below[ahead.pop()] - seen:
                seen.add(target)
                ahead.append(target)
        return seen

    return sorted(
        (source, target)
        for source in list(below)
        for target in below[source]
        if not any(target in reached(other) for other in below[source] - {target})
    )


# ---------------------------------------------------------------- picture

WIDTH, LEFT, RIGHT, GAP_X, GAP_Y, LANE, LINE, CHARACTER = 960, 200, 20, 26, 30, 14, 15, 6.3
"""Sizes in pixels; ``LANE`` is the distance between arrows side by side, ``CHARACTER`` the mean width of one."""

STYLE = """
  text { font-family: "DejaVu Sans", Helvetica, Arial, sans-serif; fill: #222; }
  .room { font-size: 14px; font-weight: bold; } .module { font-size: 11px; fill: #555; }
  .floor { font-size: 12px; fill: #777; } .box { fill: #eef3f8; stroke: #6a8caf; }
  .arrow { fill: none; stroke: #888; stroke-width: 1.3; } .head { fill: #888; }"""


def draw(found: Modules) -> str:
    """The picture as SVG."""
    members: dict[str, list[str]] = defaultdict(list)
    for module in sorted(filter(None, found)):
        members[room_of(module)].append(module)
    floors = [(words, [room for room in on_floor if room in members]) for words, on_floor in reversed(FLOORS)]
    floors = [(words, present) for words, present in floors if present]
    row_of = {room: row for row, (_, present) in enumerate(floors) for room in present}
    edges = [pair for pair in shortest(arrows(found)) if row_of[pair[0]] <= row_of[pair[1]]]

    in_row = {room: len(present) for _, present in floors for room in present}
    text = {room: _wrapped(_short(room, members[room]), 66 if in_row[room] == 1 else 38) for room in row_of}
    width = {room: max(len(room) * 9.0, *(len(line) * CHARACTER for line in text[room]), 60) + 24 for room in row_of}
    centre: dict[str, float] = {}
    for _, present in floors:
        x = LEFT + (WIDTH - LEFT - RIGHT - sum(width[room] for room in present) - GAP_X * (len(present) - 1)) / 2
        for room in present:
            centre[room] = x + width[room] / 2
            x += width[room] + GAP_X
    lanes = _lanes(edges, [present for _, present in floors], row_of, centre, width)

    height = [28 + LINE * max(len(text[room]) for room in present) for _, present in floors]
    top = [20.0]
    for row_height in height[:-1]:
        top.append(top[-1] + row_height + GAP_Y)
    total = top[-1] + height[-1] + 20

    body = []
    ports = _ports(edges, row_of, centre, width, lanes)
    for source, target in edges:
        start, end = top[row_of[source]] + height[row_of[source]], top[row_of[target]]
        x = ports[source, target, "from"]
        path = f"M{x:.1f},{start:.1f}"
        if (lane := lanes.get((source, target))) is not None:
            first, last = top[row_of[source] + 1], top[row_of[target] - 1] + height[row_of[target] - 1]
            path += f"{_curve(x, start, lane, first)} L{lane:.1f},{last:.1f}"
            x, start = lane, last
        x_end = ports[source, target, "to"]
        path += _curve(x, start, x_end, end - 6)
        head = f"M{x_end - 4:.1f},{end - 7:.1f} L{x_end + 4:.1f},{end - 7:.1f} L{x_end:.1f},{end:.1f} Z"
        body.append(f'<path class="arrow" d="{path}"><title>{escape(f"{source} imports {target}")}</title></path>')
        body.append(f'<path class="head" d="{head}"/>')
    for row, (words, present) in enumerate(floors):
        middle = top[row] + height[row] / 2 + 4
        body.append(f'<text class="floor" x="16" y="{middle:.1f}">{escape(words)}</text>')
        for room in present:
            x = centre[room]
            body.append(
                f'<rect class="box" x="{x - width[room] / 2:.1f}" y="{top[row]:.1f}" width="{width[room]:.1f}" '
                f'height="{height[row]:.1f}" rx="5"/>'
            )
            body.append(
                f'<text class="room" x="{x:.1f}" y="{top[row] + 19:.1f}" text-anchor="middle">{escape(room)}</text>'
            )
            for number, line in enumerate(text[room]):
                y = top[row] + 20 + LINE * (number + 1)
                body.append(f'<text class="module" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(line)}</text>')
    inner = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total:.0f}" '
        f'width="{WIDTH}" height="{total:.0f}">\n'
        f"<title>The packages of src/srpo; an arrow means imports</title>\n<style>{STYLE}\n</style>\n"
        f'<rect width="100%" height="100%" fill="white"/>\n{inner}\n</svg>\n'
    )


def _short(room: str, members: list[str]) -> list[str]:
    """The names of a room's modules within it, without the package itself; none for a room of one module."""
    names = [module.rpartition(".")[2] for module in members if module.replace(".", "/") != room]
    return [] if names == [room] else names


def _wrapped(names: list[str], characters: int) -> list[str]:
    lines = [""]
    for name in names:
        if lines[-1] and len(lines[-1]) + len(name) + 2 > characters:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + name
    return lines


def _curve(x: float, y: float, x_end: float, y_end: float) -> str:
    middle = (y + y_end) / 2
    return f" C{x:.1f},{middle:.1f} {x_end:.1f},{middle:.1f} {x_end:.1f},{y_end:.1f}"


def _lanes(
    edges: list[Arrow], floors: list[list[str]], row_of: dict[str, int], centre: Centres, width: Centres
) -> dict[Arrow, float]:
    """For each arrow that passes rows between its ends, its x while it passes: beside the rooms, short arrows first."""
    taken: list[tuple[int, int, float]] = []
    lanes = {}
    for source, target in sorted(edges, key=lambda edge: (row_of[edge[1]] - row_of[edge[0]], edge)):
        first, last = row_of[source] + 1, row_of[target] - 1
        if first > last:
            continue
        passed = [room for present in floors[first : last + 1] for room in present]
        sides = {
            -1: min(centre[room] - width[room] / 2 for room in passed) - LANE,
            1: max(centre[room] + width[room] / 2 for room in passed) + LANE,
        }
        for side in sides:
            while any(a <= last and first <= b and abs(x - sides[side]) < LANE for a, b, x in taken):
                sides[side] += side * LANE
        ends = (centre[source] + centre[target]) / 2
        lane = min(sides.values(), key=lambda x: (round(abs(x - ends)), x))
        lanes[source, target] = lane
        taken.append((first, last, lane))
    return lanes


def _ports(
    edges: list[Arrow], row_of: dict[str, int], centre: Centres, width: Centres, lanes: dict[Arrow, float]
) -> dict[tuple[str, str, str], float]:
    """Where each arrow leaves and enters a room: spread over its side in the order of where the arrows come from."""
    ports = {}
    for end in ("from", "to"):
        at_room = defaultdict(list)
        for source, target in edges:
            room, far = (source, target) if end == "from" else (target, source)
            at_room[room].append((lanes.get((source, target), centre[far]), source, target))
        for room, ends in at_room.items():
            for number, (_, source, target) in enumerate(sorted(ends)):
                share = (number + 1) / (len(ends) + 1) - 0.5
                ports[source, target, end] = centre[room] + share * (width[room] - 30)
    return ports


def main() -> int:
    """Write or check the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the picture is not current")
    options = parser.parse_args()
    picture = draw(modules())
    if not options.check:
        PICTURE.write_text(picture)
    elif not PICTURE.is_file() or PICTURE.read_text() != picture:
        print("docs/house.svg is not current: python scripts/house.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
