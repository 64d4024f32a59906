"""`feal`: the application that the modules of commands add to, and the exit codes of errors and interruptions."""

import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import click
import typer

from feal import __version__
from feal.errors import FealError

app = typer.Typer(
    name="feal",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Federated evidential active learning: one model trained across hospitals, with few labels, while images "
    "stay where they are.",
    epilog="Start with `feal run demo`; `feal COMMAND --help` shows examples.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"feal {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line; exit with 2 after a user's error, 130 after Ctrl-C, 128 + N after signal N.

    SIGTERM and SIGHUP end a command as cleanly as Ctrl-C does, unless they are ignored (`nohup`).
    """
    received: list[int] = []

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        received.append(number)
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
        from feal.fileio import wrap_os_error

        typer.echo(f"Error: {wrap_os_error(error)}", err=True)
        code = 2
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.Abort:
        code = 130
    sys.exit(128 + received[0] if received else code)
