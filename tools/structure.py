"""Measures the structure of a source tree: ``python -m tools.structure folders|parameters|walk [--root PATH]``.

The tree may be another checkout, an older one too, so that one script gives the figures before and after a change:

    git worktree add /tmp/before 5f68bc6
    python -m tools.structure all --root /tmp/before
    python -m tools.structure all

``folders`` gives files per folder, the longest files and the lengths of functions; ``parameters`` lists the functions
with more than ten parameters; ``walk`` follows requests through a running service (see ``tools/walk.py``).
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from pathlib import Path

from tools.source import PACKAGE, functions, modules, tracked

MOST_PARAMETERS = 10
ROWS = 6  # per list


def folders(root: Path) -> list[str]:
    """Files per folder of ``src``, the longest Python files, and the 95th percentile of function lengths."""
    counts = Counter(path.rpartition("/")[0] for path in tracked(root, ["src"]))
    files = {path: len((root / path).read_text(encoding="utf-8").splitlines()) for path, _ in modules(root)}
    lengths = sorted(each.lines for path, tree in modules(root) for each in functions(path, tree))
    percentile = lengths[math.ceil(0.95 * len(lengths)) - 1]
    return [
        f"files per folder: most {max(counts.values())}, in {len(counts)} folders",
        *(f"  {count:4d}  {folder}" for folder, count in counts.most_common(ROWS)),
        f"lines per Python file: most {max(files.values())}, in {len(files)} files",
        *(f"  {count:4d}  {path}" for path, count in Counter(files).most_common(ROWS)),
        f"lines per function: 95th percentile {percentile}, most {lengths[-1]}, in {len(lengths)} functions",
    ]


def parameters(root: Path) -> list[str]:
    """The functions of the package with more than ten parameters."""
    every = [each for path, tree in modules(root) for each in functions(path, tree)]
    long = sorted((each for each in every if each.parameters > MOST_PARAMETERS), key=lambda each: -each.parameters)
    return [
        f"functions with more than {MOST_PARAMETERS} parameters: {len(long)}",
        *(f"  {each.parameters:4d}  {each.path.removeprefix(PACKAGE + '/')}:{each.line} {each.name}" for each in long),
    ]


def walk(root: Path) -> list[str]:
    """Files entered and calls between files, per kind of request."""
    from tools.walk import walks  # needs the service's dependencies, and hushprice from ``root``

    lines = [f"{'request':16}{'files':>7}{'calls between files':>21}"]
    measured = walks(root)
    lines += [f"{each.name:16}{len(each.files):7d}{each.calls:21d}" for each in measured]
    for each in measured:
        lines += ["", f"{each.name}, files in the order of entry:", *(f"  {path}" for path in each.files)]
    return lines


MEASURES = {"folders": folders, "parameters": parameters, "walk": walk}


def main(arguments: list[str] | None = None) -> None:
    """Print the measures asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.structure", description="Measure the structure of a tree.")
    parser.add_argument("measure", choices=[*MEASURES, "all"])
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout to measure; default: this one")
    options = parser.parse_args(arguments)
    for name in MEASURES if options.measure == "all" else [options.measure]:
        print("\n".join(MEASURES[name](options.root.resolve())), end="\n\n")


if __name__ == "__main__":
    main()
