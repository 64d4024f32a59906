"""The command line: a module adds its commands to the application, here in the order of the help."""

from importlib import import_module

from feal.cli.app import main as main

_COMMANDS = "run sweep show labels list compare report plot predict export data deploy"

for _name in _COMMANDS.split():
    import_module(f"feal.cli.{_name}")
