"""`feal`: all commands together, and what a mistake or an interruption ends with."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import click
import typer

from feal.cli.data import app as data_app
from feal.cli.deploy import app as deploy_app
from feal.cli.models import app as models_app
from feal.cli.results import app as results_app
from feal.cli.runs import app as runs_app
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
for commands in (runs_app, results_app, models_app):
    app.add_typer(commands)
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")


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
    """Entry point: a user's mistake is one sentence and exit code 2, an interruption 130, a polite kill 143.

    A terminal that closes is a polite kill too (129), unless `nohup` said otherwise.
    """
    asked_to_end: list[int] = []

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        asked_to_end.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, terminate)
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
    sys.exit(128 + asked_to_end[0] if asked_to_end else code)
