"""The command `demo`: files made up on the spot, and the other commands run on them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmsfast.cli import _options

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LAYERS, TOKENS, WIDTH = 6, 256, 512
MASSIVE = (107, 380)  # coordinates
COMMANDS = (
    "describe activations.safetensors --plot rows.png",
    "rms activations.safetensors --tensor resid.5 -o row_rms.npy",
    "compare exact.safetensors activations.safetensors --fail-over 0.01",
    "normalize activations.safetensors --zero zero -o unit.safetensors",
    "rms-norm activations.safetensors --tensor resid.5 --eps 1e-5 -o normed.npy",
    "dose activations.safetensors --tensor resid.5 --direction direction.npy --plot doses.png",
    "dose activations.safetensors --tensor resid.5 --direction direction.npy --alpha 0.03 "
    "-o edited.npy",
    "windows recording.npy --rate 1000 --window 500ms --plot map.png",
)
NEXT = (
    "rmsfast describe activations.safetensors --tensor 'resid.[3-5]' --axis 0 --json",
    "rmsfast rms activations.safetensors --tensor resid.5 | sort -g | tail -3",
    "rmsfast compare exact.safetensors activations.safetensors --csv errors.csv --plot errors.png",
    "rmsfast describe YOUR_FILE",
    "rmsfast COMMAND --help",
)


@_options.command("rmsfast demo")
def demo() -> None:
    """Write small files and run commands on them.

    activations.safetensors is like the residual stream of a model in bfloat16, 6 layers of 256
    tokens and 512 coordinates: the RMS grows with depth, two coordinates are massive, and one token
    of one layer is a zero row. exact.safetensors holds the same in float32, direction.npy a
    direction to edit along; recording.npy is a recording of 12 channels. The folder is kept.
    """
    import tempfile

    from rmsfast.files import save_npy

    folder = tempfile.mkdtemp(prefix="rmsfast-demo-")
    click.echo("What runs for the first time is compiled: half a minute in all.\n")
    click.echo(f"$ cd {shlex.quote(folder)}")
    with chdir(folder):
        stream = _stream()
        codes = {name: bfloat16_codes(values).astype("<u2") for name, values in stream.items()}
        _write("activations.safetensors", "BF16", codes)
        _write("exact.safetensors", "F32", stream)
        save_npy("direction.npy", _direction())
        save_npy("recording.npy", _recording())
        for line in COMMANDS:
            click.echo(f"\n$ rmsfast {line}")
            _run(shlex.split(line))
    click.echo("\nTry next, in that folder:")
    for line in NEXT:
        click.echo(f"  {line}")


def _run(words: list[str]) -> Any:
    commands = click.get_current_context().find_root().command
    return commands.main(words, prog_name="rmsfast", standalone_mode=False)


def _stream() -> dict[str, NDArray[np.float32]]:
    import numpy as np

    rng = np.random.default_rng(0)
    stream = np.zeros((TOKENS, WIDTH), np.float32)
    found = {}
    for layer in range(LAYERS):
        stream += rng.normal(0, 1.5**layer, stream.shape).astype(np.float32)
        stored = stream.copy()
        stored[:, MASSIVE] *= 40
        if layer == 3:
            stored[17] = 0
        found[f"resid.{layer}"] = stored
    return found


def _direction() -> NDArray[np.float32]:
    import numpy as np

    return np.random.default_rng(1).normal(size=WIDTH).astype(np.float32)


def _recording() -> NDArray[np.int16]:
    """20 s of 12 channels, of which 7 is dead and 4 is noisy."""
    import numpy as np

    noise = np.random.default_rng(2).normal(0, 20, (20_000, 12))
    noise[:, 4] *= 8
    noise[:, 7] = 0
    return noise.round().astype(np.int16)


def _write(path: str, dtype: str, tensors: Mapping[str, NDArray[Any]]) -> None:
    """A .safetensors file, without the libraries that know bfloat16."""
    header, begin = {}, 0
    for name, values in tensors.items():
        offsets = [begin, begin + values.nbytes]
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": offsets}
        begin += values.nbytes
    text = json.dumps(header).encode()
    blobs = [values.tobytes() for values in tensors.values()]
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def bfloat16_codes(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round finite numbers to the nearest bfloat16, ties to even: the upper half of a float32."""
    import numpy as np

    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
