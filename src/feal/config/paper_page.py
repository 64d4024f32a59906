"""docs/paper-map.md: the map of the paper, written from its data.

`feal paper --format markdown > docs/paper-map.md` brings the page up to date.
"""

from __future__ import annotations

from feal.config.paper_map import CITATION, Entry, differences, entries

_HEAD = f"""# The map of the paper

Every table and figure of {CITATION}, and of its supplement: what it shows,
and the commands that make it here. The data sets must be prepared first ([datasets.md](datasets.md)), and the
networks want a GPU. `feal paper NAME` prints the numbers that the paper has, `feal paper NAME --runs DIR` ours
beside them: mean ± standard deviation, difference, number of seeds, and in which settings the runs are not the
table's. Runs that are there already are not made again by the same `feal sweep`.

The numbers were transcribed from the paper's LaTeX source, which holds the supplement's text and tables and none
of the pictures: what is in plots only is not shipped, and each entry says what that is. The page is written by
`feal paper --format markdown`, and a test fails when it and the data differ.
"""


def paper_page() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD, _overview(), "## How ours differs from the authors'\n"]
    parts += [f"- **{key}**: {text}" for key, text in differences().items()]
    parts.append("")
    parts += [_section(entry) for entry in entries()]
    return "\n".join(parts)


def _overview() -> str:
    rows = "\n".join(
        f"| [{entry.name}](#{entry.name}) | {entry.shows} | {len(entry.published()) or 'none'} |"
        for entry in entries()
    )
    return f"| name | what it shows | published numbers |\n|---|---|---|\n{rows}\n"


def _section(entry: Entry) -> str:
    lines = [f"## {entry.name}\n", f"{entry.shows} (section {entry.section}).", *_about(entry)]
    if entry.commands():
        lines += ["", "```", *entry.commands(), "```"]
    return "\n".join([*lines, ""])


def _about(entry: Entry) -> list[str]:
    said = []
    if entry.numbers:
        said.append(f"Published numbers: those of [{entry.numbers}](#{entry.numbers}).")
    if entry.unprinted:
        said.append(f"Not printed in the paper: {entry.unprinted}.")
    if entry.says:
        said.append(entry.says)
    if entry.differs:
        said.append(f"Differs by: {', '.join(entry.differs)}.")
    return said
