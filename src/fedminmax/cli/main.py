"""The `fedminmax` command: parse arguments, call one function, report errors in one line.

Messages on standard error need no package but Python's own.
"""

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from textwrap import fill
from types import FrameType
from typing import Any, NoReturn

from fedminmax.core.text import did_you_mean

USER_MISTAKE = 2
INTERRUPTED = 130
# Each command has a module of its name in this room, which adds its options and runs it; those that
# use a trained model share one.
COMMANDS = {
    "start": ("demo", "init", "train", "report"),
    "inspect": ("advise", "frontier", "watch", "evaluate", "audit"),
    "use": ("predict", "export"),
    "real sites": ("federation", "site"),
    "research": ("compare", "methods"),
}
MODULES = dict.fromkeys(("evaluate", "predict", "export"), "use")
ALL = tuple(name for names in COMMANDS.values() for name in names)
EXAMPLES = """examples:
  fedminmax demo --open
  fedminmax init north.csv south.csv west.csv --target outcome --groups sex
  fedminmax train fedminmax.toml
  fedminmax report runs/fedminmax

'fedminmax COMMAND --help' lists the options of a command.
"""


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports an error in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Print the error and where to find help, and exit with code 2."""
        self.exit(USER_MISTAKE, f"{self.prog}: error: {message}; see '{self.prog} --help'\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse the first argument that this command does not have, with a hint."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = ""
            if unknown[0].startswith("--"):
                hint = f"; {did_you_mean(unknown[0], sorted(self._option_string_actions))}"
            self.error(f"{unknown[0]} is unknown{hint}")
        return options, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not among the choices, with a hint."""
        if action.choices is not None and value not in action.choices:
            hint = did_you_mean(str(value), [str(choice) for choice in action.choices])
            raise argparse.ArgumentError(action, f"'{value}' is unknown; {hint}")


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Build the parser of one command, or of all, without importing what they need."""
    parser = OneLineParser(
        prog="fedminmax",
        usage="fedminmax COMMAND ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Train one model across many sites so that it is as good as possible for its\n"
            "worst-off group, without any record leaving its site."
        ),
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(prog="fedminmax", dest="command", help=argparse.SUPPRESS)
    names = (command,) if command in ALL else ALL
    for module in dict.fromkeys(MODULES.get(name, name) for name in names):
        import_module(f"fedminmax.cli.{module}").add_to(commands)
    short = {action.dest: action.help for action in commands._get_subactions()}
    listed = "".join(
        f"{title}:\n" + "".join(f"  {name:<11} {short.get(name)}\n" for name in names)
        for title, names in COMMANDS.items()
    )
    parser.epilog = f"{listed}\n{EXAMPLES}"
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = build_parser(words[0] if words else None)
    options = parser.parse_args(words)
    if options.version:
        from fedminmax import __version__

        print(__version__)
        return 0
    if options.command is None:
        parser.print_help()
        return 0
    return run_command(options)


def run_command(options: argparse.Namespace) -> int:
    """Run the command that was parsed and return its exit code; an error is one line."""
    from fedminmax.core.errors import EXTRAS, DivergedError, InputError, install_command

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        options.run(options)
        sys.stdout.flush()
    except InputError as error:
        return _fail(str(error), USER_MISTAKE)
    except DivergedError as error:
        return _fail(str(error), 1)
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in EXTRAS:
            raise
        return _fail(f"{package} is needed: {install_command(package)}", USER_MISTAKE)
    except BrokenPipeError:
        # The reader of our output, such as `head`, closed the pipe: discard the rest.
        devnull = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(devnull, stream.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}", 1)
    except KeyboardInterrupt:
        return _fail("interrupted; run the same command again to continue", INTERRUPTED)
    return 0


def _fail(message: str, code: int) -> int:
    say(f"error: {message}")
    return code


def _interrupt(signal_number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """Treat SIGTERM like Ctrl-C, so that the last round is saved."""
    raise KeyboardInterrupt


def say(message: str) -> None:
    """Print a message on standard error, unbuffered; on a terminal no word is cut."""
    text = f"fedminmax: {message}"
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        text = fill(text, width, break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
