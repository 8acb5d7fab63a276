"""The command line: one module for each group of commands.

Whatever is wrong with a file or an option ends as one plain line on standard error and exit code
2; exit code 1 is a finding, 141 a pipe whose reader has left. Modules import NumPy and rich in the
commands that need them, so that help and version answer at once.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import click

from rmsfast import __version__
from rmsfast.cli import _compare, _demo, _describe, _dose, _machine, _windows, _write
from rmsfast.cli._output import printable

__all__ = ["cli", "main"]

INTERRUPTED, CLOSED_PIPE = 128 + 2, 128 + 13  # as a shell counts SIGINT and SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name may not fit the encoding of a pipe
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = cli.main(arguments, prog_name="rmsfast", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except SystemExit as end:  # with 1 by click and rich, where the reader of a pipe has left
        if end.code != 1:
            raise
        return CLOSED_PIPE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "rmsfast"
        return _fault(f"{error.format_message().rstrip('.')} (see {where} --help)")
    except OSError as error:
        if error.filename is None:
            _discard_output()
        return _fault(f"{error.filename or 'standard output'}: {error.strerror or error}")
    except MemoryError:
        return _fault("out of memory")
    except (ValueError, TypeError, ImportError, RuntimeError, click.ClickException) as error:
        return _fault(str(error))
    return status or 0


def _fault(text: str) -> int:
    click.echo(f"rmsfast: {printable(text)}", err=True)
    return 2


def _discard_output() -> None:
    """Keep the interpreter from flushing, once more, what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _InOrder(click.Group):
    """Commands are listed as they are below, not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - of click
        return list(self.commands)


@click.group(
    cls=_InOrder,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="rmsfast COMMAND --help shows an example of each.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Root mean squares of the tensors in files larger than memory.

    A FILE is .npy, .npz, .safetensors (or the .json index of its shards), .zarr, .h5 or .hdf5; a
    folder or quoted pattern of shards; or, with --dtype, raw binary. bfloat16 and float8 are
    included.

    Exit codes: 0, 1 for a finding (as --fail-over), 2 for bad input or usage, 141 where the reader
    of a pipe leaves early.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (
    _describe.describe,
    _describe.rms,
    _compare.compare,
    _write.normalize,
    _write.rms_norm,
    _dose.dose,
    _dose.measure_dose,
    _windows.windows,
    _machine.info,
    _machine.warmup,
    _machine.bench,
    _demo.demo,
):
    cli.add_command(_command)
