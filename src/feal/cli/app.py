"""`feal`: its commands, each in a module of its own; run `feal --help` for all of them."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal, NoReturn

import click
import typer

from feal.cli.data import app as data_app
from feal.cli.deploy import app as deploy_app
from feal.errors import FealError
from feal.version import VERSION

app = typer.Typer(
    name="feal",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Federated evidential active learning: one model from many hospitals, few labels, no image moved.",
    epilog="Begin with `feal run demo`; every command has examples under --help.",
)
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")

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


@app.command(
    epilog="Examples: `feal compare runs/demo-sweep` · "
    "`feal compare runs/demo-sweep --metric accuracy --over mean` · "
    "`feal compare runs/one runs/other --to 'entropy global' --format markdown`"
)
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories, or folders of them.")],
    metric: Annotated[str | None, typer.Option(help="A figure of the runs; the task's first by default.")] = None,
    over: Annotated[
        Literal["pooled", "mean"], typer.Option(help="All sites' test samples, or the mean of the sites' figures.")
    ] = "pooled",
    format_: Annotated[
        Literal["table", "markdown", "latex", "csv"], typer.Option("--format", help="What to print.")
    ] = "table",
    to: Annotated[str | None, typer.Option(help="Arm to hold the others against; random by default.")] = None,
    share: Annotated[float, typer.Option(help="Share of full supervision's figure that is to be reached.")] = 0.95,
) -> None:
    """Compare runs: arms by round over seeds, and how sure one can be of the differences."""
    from feal.cli.compare import compare as print_comparison

    print_comparison(folders, metric=metric, over=over, form=format_, to=to, share=share)


@app.command(epilog="Example: `feal show runs/demo-feal-0`")
def show(folder: Annotated[Path, typer.Argument(help="The run directory.")]) -> None:
    """Show where a run stands."""
    from feal.cli.standing import show_run

    show_run(folder)


@app.command(epilog="Examples: `feal labels runs/demo-feal-0` · `feal labels runs/demo-feal-0 --export labels`")
def labels(
    folder: Annotated[Path, typer.Argument(help="The run directory.")],
    site: Annotated[str | None, typer.Option(help="This site only.")] = None,
    export: Annotated[Path | None, typer.Option(help="New folder for all labels with their history.")] = None,
) -> None:
    """Show who answered what and when, and what is awaited; export the labels."""
    from feal.cli.labels import show_labels

    show_labels(folder, site=site, export=export)


@app.command(
    epilog="Examples: `feal predict runs/demo-feal-0 --images my-pictures` · "
    "`feal predict exports/demo-feal-0 --images my-pictures --out predictions/first`"
)
def predict(
    run: Annotated[Path, typer.Argument(help="A run directory, also of a run under way, or an exported folder.")],
    images: Annotated[Path, typer.Option(help="Folder of pictures: PNG, JPEG, TIFF, BMP, also in its folders.")],
    out: Annotated[Path | None, typer.Option(help="New folder; one under predictions/ by default.")] = None,
    round_: Annotated[int | None, typer.Option("--round", help="The newest finished round by default.")] = None,
    values: Annotated[
        bool, typer.Option("--values", help="Segmentation: keep exact uncertainties of pixels as .npy files.")
    ] = False,
) -> None:
    """Predict pictures: class or mask, expected probability, aleatoric and epistemic uncertainty.

    Writes `predictions.csv`; for segmentation also masks (a pixel's value is its class) and uncertainty maps, dark
    where the model is sure: aleatoric u / ln C and epistemic exp((h + lnGamma(C)) / (C - 1)), both from 0 to 1.
    """
    from feal.cli.taking_home import predict_pictures

    predict_pictures(run, images=images, out=out, round=round_, values=values)


@app.command(
    epilog="Examples: `feal export runs/demo-feal-0` · "
    "`feal export runs/demo-feal-0 --format both --round 3 --out exports/third`"
)
def export(
    run: Annotated[Path, typer.Argument(help="A run directory, also of a run under way.")],
    out: Annotated[Path | None, typer.Option(help="New folder; one under exports/ by default.")] = None,
    format_: Annotated[
        Literal["onnx", "torchscript", "both", "none"],
        typer.Option("--format", help="Graph to add to the weights; onnx needs `pip install 'feal[onnx]'`."),
    ] = "torchscript",
    round_: Annotated[int | None, typer.Option("--round", help="The newest finished round by default.")] = None,
) -> None:
    """Export the global model: safetensors, model.json, a model card, and a graph to run without feal."""
    from feal.cli.taking_home import export_model

    export_model(run, out=out, format=format_, round=round_)


@app.command(
    epilog="Examples: `feal report runs -o report.html` · `feal report runs/feal-0 runs/random-0 --pictures`"
)
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run directories, or folders of them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Put thumbnails of chosen samples in: they are patients'.")
    ] = False,
) -> None:
    """Write one page about runs, finished or not, that opens in any browser without a network."""
    from feal.cli.reporting import write_report

    write_report(folders, out=out, pictures=pictures)


@app.command(
    epilog="Examples: `feal figure` · `feal figure curves runs -o curves.pdf` · "
    "`feal figure curves runs -o hd95.svg --where metric=hd95 --where over=mean` · "
    "`feal figure cost runs -o cost.csv`"
)
def figure(
    name: Annotated[str | None, typer.Argument(help="Which one; all are listed without it.")] = None,
    folders: Annotated[list[Path] | None, typer.Argument(help="Run directories, or folders of them.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A .pdf, .svg or .png file; a .csv file for its numbers.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Only these of its numbers; see the .csv file."),
    ] = None,
) -> None:
    """Draw a figure of runs for a publication, or write its numbers."""
    from feal.cli.figures import draw_figure, list_figures

    if name is None:
        list_figures()
    else:
        draw_figure(name, folders or [], out=out, where=where or [])


@app.command(epilog="Examples: `feal watch runs` · `feal watch runs/demo-feal-0 --port 8100`")
def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, or a folder of them.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="A free one by default.")] = 0,
) -> None:
    """Show runs live in a browser on this machine: progress, what they wait for, and the report so far."""
    from feal.cli.reporting import watch_runs

    watch_runs(folder, port=port)


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


@app.command(
    epilog="Examples: `feal paper` · `feal paper table-2` · `feal paper table-2 --runs runs/table-2` · "
    "`feal paper table-6 --runs runs/mine runs/hers --format markdown`"
)
def paper(
    name: Annotated[str | None, typer.Argument(help="A table or figure, such as table-2; all by default.")] = None,
    more: Annotated[list[Path] | None, typer.Argument(metavar="--runs DIR...", hidden=True)] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--runs", metavar="DIR...", help="Run directories, or folders of them, to put beside it."),
    ] = None,
    over: Annotated[
        Literal["mean", "pooled"],
        typer.Option(help="Ours: the mean of the sites' figures, or of all test samples together."),
    ] = "mean",
    format_: Annotated[
        Literal["table", "markdown", "csv"], typer.Option("--format", help="How to print it.")
    ] = "table",
) -> None:
    """Show every table and figure of the paper, the commands that make it, its numbers, and ours beside them."""
    if runs and name is not None:
        from feal.cli.paper_runs import show_beside

        show_beside(name, [*runs, *(more or [])], over=over, format=format_)
        return
    from feal.cli.paper import show_entries, show_entry

    if runs:
        raise FealError("--runs needs a table's name first: `feal paper table-2 --runs DIR`.")
    if more:
        raise FealError(f"'{more[0]}' is one word too many: run directories come after --runs.")
    if name is None:
        show_entries(format=format_)
    else:
        show_entry(name, format=format_)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"feal {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Entry point: a user's mistake is one sentence and exit code 2, an interruption 130, a polite kill 143."""
    asked_to_end: list[int] = []

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        asked_to_end.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminate)
    try:
        code = app(standalone_mode=False)
    except FealError as error:
        typer.echo(f"Error: {error}", err=True)
        code = 2
    except OSError as error:
        from feal.files import from_system

        typer.echo(f"Error: {from_system(error)}", err=True)
        code = 2
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    sys.exit(143 if asked_to_end else code)
