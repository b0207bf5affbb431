"""The gate of `make coverage`: every line and branch runs, but for the few that are listed.

It reads coverage's JSON report and tests/coverage-exempt.txt, in which a line

    keel/mesh/x.py | function | the code, stripped | scenario

exempts one line that only a scenario of the lab runs; there are at most `MOST` of them. The gate is
red for a line or branch that did not run and is not listed, for a listed line that ran or is not
there, and for a scenario that does not exist.

A `match` without a default has no way past its last case: mypy's exhaustive-match proves it.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST = 40
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Line:
    """One line of code, by what it is and not by its number, which others' changes move."""

    path: str
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.path} | {self.function} | {self.text}"


@dataclass
class Listed:
    """The list, read."""

    lines: dict[Line, str] = field(default_factory=dict)
    """Each with its scenario."""
    faults: list[str] = field(default_factory=list)


@dataclass
class Missed:
    """What of one module did not run."""

    lines: dict[int, Line]
    branches: list[tuple[int, str]]
    """Line and text of branches that were not taken between lines that did run."""


def read_list(text: str, scenarios: set[str]) -> Listed:
    listed = Listed()
    for number, raw in enumerate(text.splitlines(), start=1):
        match [part.strip() for part in raw.split(" | ")]:
            case [""]:
                pass
            case [comment] if comment.startswith("#"):
                pass
            case [path, function, code, scenario]:
                if scenario not in scenarios:
                    listed.faults.append(f"line {number} of the list: no scenario {scenario}")
                listed.lines[Line(path, function, code)] = scenario
            case _:
                listed.faults.append(f"line {number} of the list is not of its form")
    if len(listed.lines) > MOST:
        listed.faults.append(f"{len(listed.lines)} lines are listed, {MOST} at most may be")
    return listed


def missed(path: str, source: str, found: Mapping[str, Any]) -> Missed:
    """What did not run of a module, from its part of the report."""
    functions, last_cases = _shape(source)
    text = source.splitlines()
    lines = {
        number: Line(path, functions.get(number, "module"), text[number - 1].strip())
        for number in found["missing_lines"]
    }
    ends = {number: end for number, end in last_cases.items() if number not in lines}
    # a comprehension or lambda that was never run to its end is no branch of its own
    taken = [
        (start, to)
        for start, to in found["missing_branches"]
        if to != -start
        and start not in lines
        and to not in lines
        and not (start in ends and not start < to <= ends[start])
    ]
    branches = [
        (start, f"{path}:{start}: never {'leaves from here' if to < 0 else f'goes to {to}'}")
        for start, to in taken
    ]
    return Missed(lines, branches)


def judge(modules: Mapping[str, Missed], listed: Listed) -> Iterator[str]:
    """Every fault, as a line to print."""
    yield from listed.faults
    seen: Counter[Line] = Counter()
    for path, module in sorted(modules.items()):
        seen.update(module.lines.values())
        for number, line in module.lines.items():
            if line not in listed.lines:
                yield f"{path}:{number}: never runs: {line.text}"
        yield from (text for _, text in module.branches)
    for line in listed.lines:
        if seen[line] != 1:
            yield f"listed, but {seen[line]} lines that never ran are this: {line}"


def _shape(source: str) -> tuple[dict[int, str], dict[int, int]]:
    """Per line the function it is in; per last case of a `match` the last line of its body."""
    functions: dict[int, str] = {}
    last_cases: dict[int, int] = {}

    def walk(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = name
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = f"{name}.{child.name}" if name else child.name
                for number in range(child.lineno, (child.end_lineno or 0) + 1):
                    functions[number] = inner
            if isinstance(child, ast.Match):
                last = child.cases[-1]
                last_cases[last.pattern.lineno] = last.body[-1].end_lineno or 0
            walk(child, inner)

    walk(ast.parse(source), "")
    return functions, last_cases


def main() -> int:
    report = json.loads((ROOT / "build/coverage/report.json").read_text())
    scenarios = (ROOT / "netns/scenarios/required.txt").read_text().split("\n")
    listed = read_list((ROOT / "tests/coverage-exempt.txt").read_text(), set(scenarios))
    expected = {*(ROOT / "keel/mesh").glob("*.py"), ROOT / "keel/system/etcd.py"}
    modules = {
        path: missed(path, (ROOT / path).read_text(), found)
        for path, found in report["files"].items()
    }
    faults = list(judge(modules, listed))
    for path in sorted(str(each.relative_to(ROOT)) for each in expected):
        if path not in modules:
            faults.append(f"{path} was not measured")
    print(*faults, sep="\n")
    left = len(listed.lines)
    print(f"coverage: {len(modules)} modules, {left} lines left to the lab, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
