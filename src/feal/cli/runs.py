"""Commands that make runs and show how they stand: run, resume, sweep, show, labels, list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings that differ from the preset's.")
]

Wait = Annotated[
    bool,
    typer.Option("--wait", help="Look for labels every annotation.poll_seconds instead of ending as waiting."),
]


@app.command(
    epilog="Examples: `feal run demo` · `feal run demo strategy=random seed=1 --out runs/random-1` · "
    "`feal run demo training.lr=1e-3 rounds=2` · `feal run my.yaml`"
)
def run(
    preset: Annotated[str, typer.Argument(help="A preset (`feal list presets`) or the path of a YAML file.")],
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; a new one under runs/ by default.")] = None,
    wait: Wait = False,
) -> None:
    """Run an experiment to its end, or until it waits for labels."""
    from feal.cli.screen import Screen
    from feal.config import load, parse
    from feal.experiment import start
    from feal.experiment.folder import free_folder
    from feal.selection import short_name

    settings = load(preset, parse(overrides or []))
    if out is None:
        out = free_folder(Path("runs"), f"{Path(preset).stem}-{short_name(settings.strategy)}-{settings.seed}")
    with Screen(settings, out, preset=preset) as screen:
        screen.finished(start(settings, out=out, wait=wait, watcher=screen))


@app.command(
    epilog="Examples: `feal resume runs/demo-feal-0` · `feal resume runs/demo-feal-0 rounds=8` · "
    "`feal resume runs/demo-feal-0 engine=flower-simulation` · `feal resume runs/asking --wait`"
)
def resume(
    folder: Annotated[Path, typer.Argument(help="The run directory.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="More rounds, another engine, quorum, min_share ..."),
    ] = None,
    wait: Wait = False,
) -> None:
    """Go on with a run that was interrupted, killed or finished, or that waits for labels."""
    from feal.cli.screen import Screen
    from feal.config import parse, revise
    from feal.experiment import resume as proceed
    from feal.experiment.folder import RunFolder, settings_of

    changes = parse(overrides or [])
    settings = revise(settings_of(RunFolder(folder)), changes)
    with Screen(settings, folder) as screen:
        screen.finished(proceed(folder, settings=settings if changes else None, wait=wait, watcher=screen))


@app.command(
    epilog="Examples: `feal sweep demo strategy=feal,entropy,random query_model=global,local seed=0,1,2` · "
    "`feal sweep demo strategy=feal,random,full seed=0,1,2 -j 2 --out runs/first` · "
    "`feal sweep fed-polyp selection.n=5,10 selection.terms=[aleatoric-global],[aleatoric-local]`"
)
def sweep(
    preset: Annotated[str, typer.Argument(help="A preset (`feal list presets`) or the path of a YAML file.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE[,VALUE]...]...", help="Settings; several values are combined."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; runs/PRESET-sweep by default.")] = None,
    at_a_time: Annotated[
        int | None, typer.Option("-j", min=1, help="Runs at a time; by cores and free memory by default.")
    ] = None,
) -> None:
    """Run every valid combination of settings, several at a time; the same command goes on after an interruption.

    A query model is combined with strategies that take it; the others run once. Exit code 1: some run is not
    finished, and the same command tries it again.
    """
    from feal.cli.sweep import sweep as carry_out

    if not carry_out(preset, overrides or [], out=out, at_a_time=at_a_time):
        raise typer.Exit(1)


@app.command(epilog="Example: `feal show runs/demo-feal-0`")
def show(folder: Annotated[Path, typer.Argument(help="The run directory.")]) -> None:
    """Show where a run stands."""
    from feal.cli.standing import show_run

    show_run(folder)


@app.command(epilog="Examples: `feal labels runs/demo-feal-0` · `feal labels runs/demo-feal-0 --export labels`")
def labels(
    folder: Annotated[Path, typer.Argument(help="The run directory; or a deployed site's folder.")],
    site: Annotated[str | None, typer.Option(help="This site only.")] = None,
    export: Annotated[Path | None, typer.Option(help="New folder for all labels with their history.")] = None,
) -> None:
    """Show who answered what and when, and what is awaited; export the labels."""
    from feal.cli.labels import show_labels

    show_labels(folder, site=site, export=export)


@app.command("list", epilog="Examples: `feal list strategies` · `feal list presets --paper`")
def list_(
    what: Annotated[
        str, typer.Argument(metavar="strategies|presets|datasets|models|engines|annotators", help="What to list.")
    ],
    paper: Annotated[
        bool, typer.Option("--paper", help="Presets: the paper's settings with the figures it reports.")
    ] = False,
) -> None:
    """List what a configuration can name."""
    from feal.cli.listing import show_list

    show_list(what, paper=paper)
