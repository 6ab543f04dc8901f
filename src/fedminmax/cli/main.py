"""The `fedminmax` command: parse words, call one function, turn mistakes into one line."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

USER_MISTAKE = 2
INTERRUPTED = 130


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where to look, and exit with 2."""
        self.exit(USER_MISTAKE, f"{self.prog}: error: {message}; see '{self.prog} --help'\n")


def build_parser() -> argparse.ArgumentParser:
    """Describe all commands without importing what they need."""
    from fedminmax.cli import (
        advise_options,
        compare_options,
        evaluate_options,
        export_options,
        federation_options,
        init_options,
        methods_options,
        predict_options,
        report_options,
        reproduce_options,
        site_options,
        train_options,
    )

    parser = OneLineParser(
        prog="fedminmax",
        description=(
            "Train one model across many data holders so that its worst-off group is as well "
            "off as possible, without any row leaving its holder."
        ),
        epilog="example: fedminmax reproduce synthetic --quick",
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    reproduce_options.add_to(commands)
    init_options.add_to(commands)
    advise_options.add_to(commands)
    report_options.add_to(commands)
    train_options.add_to(commands)
    evaluate_options.add_to(commands)
    predict_options.add_to(commands)
    export_options.add_to(commands)
    federation_options.add_to(commands)
    site_options.add_to(commands)
    compare_options.add_to(commands)
    methods_options.add_to(commands)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = build_parser()
    options = parser.parse_args(words)
    if options.version:
        from fedminmax import __version__

        print(__version__)
        return 0
    if options.command is None:
        parser.print_help()
        return 0
    signal.signal(signal.SIGTERM, _interrupt)
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    from fedminmax.core.errors import DivergedError, InputError
    from fedminmax.core.optional_packages import EXTRAS, install_command

    try:
        options.run(options)
        sys.stdout.flush()
    except InputError as error:
        return _complain(str(error), USER_MISTAKE)
    except DivergedError as error:
        return _complain(str(error), 1)
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in EXTRAS:
            raise
        return _complain(f"{package} is needed: {install_command(package)}", USER_MISTAKE)
    except BrokenPipeError:
        # Whoever reads our output, such as `head`, has had enough: what is left goes nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}", 1)
    except KeyboardInterrupt:
        return _complain("interrupted; call the same command again to go on", INTERRUPTED)
    return 0


def _complain(message: str, code: int) -> int:
    print(f"fedminmax: error: {message}", file=sys.stderr)
    return code


def _interrupt(signal_number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """Treat a polite request to end like Ctrl-C, so that the last round is saved."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
