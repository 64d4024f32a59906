"""ONNX graphs: write networks as such, and run them by onnxruntime, up to twice as fast as torch on a CPU."""

import io
import warnings
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn

from feal.errors import FealError

INPUT = "images"
_TOLERANCE = 1e-3
"""Largest difference between a graph and its network, as a share of the largest value: well above rounding, which
norms over a few pixels amplify, and well below what another graph would give."""


class OnnxGraph:
    """A graph from images to one tensor, run by onnxruntime on the CPU.

    Results are the same bits in every process with the same number of threads on the same kind of processor.

    Args:
        source: a file, or its content.
        threads: number of threads.
        output: name of the output; by default the first.

    Raises:
        FealError: it is no such graph, it takes more than images, or it has no such output.
    """

    def __init__(self, source: Path | bytes, *, threads: int, output: str | None = None) -> None:
        # It takes a fifth of a second to import.
        import onnxruntime

        name = str(source) if isinstance(source, Path) else "The graph"
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.use_deterministic_compute = True
        options.log_severity_level = 3  # errors: onnxruntime's warnings are about its own search for devices
        # Threads that spin between operations would take the processor from other sites' processes.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            content = source.read_bytes() if isinstance(source, Path) else source
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has an exception for every kind of failure, without a common base
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise FealError(
                f"{name} is not an ONNX graph that onnxruntime {version('onnxruntime')} can run ({reason}): "
                "give another one."
            ) from error
        inputs = [node.name for node in self._session.get_inputs()]
        outputs = [node.name for node in self._session.get_outputs()]
        if len(inputs) != 1:
            raise FealError(
                f"{name} takes {', '.join(inputs) or 'nothing'}: give a graph that takes images alone."
            )
        if output not in (None, *outputs):
            raise FealError(f"{name} has no output {output}: name one of {', '.join(outputs)}.")
        self._input, self._output = inputs[0], output or outputs[0]

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return the output of images [B, channels, H, W]."""
        (output,) = self._session.run([self._output], {self._input: images.contiguous().numpy()})
        return torch.from_numpy(output)


@torch.no_grad()
def write_graph(network: nn.Module, images: torch.Tensor, *, outputs: tuple[str, ...] = ("output",)) -> bytes:
    """Write a module in evaluation mode as an ONNX graph for any number of images of this size.

    Args:
        network: returns one tensor for each name of `outputs`.
        images: at least 3 examples [B, channels, H, W].
        outputs: names for the outputs.

    Raises:
        FealError: torch cannot write this module, or the graph computes other values.
    """
    content = io.BytesIO()
    try:
        with warnings.catch_warnings():
            # Of the exporters only this one takes less than a second; the other one needs ten. It warns that it is
            # not developed further, and of sizes that Python reads while tracing: they are fixed.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network,
                (images[:2].contiguous(),),
                content,  # type: ignore[arg-type]  # an open file is as good as a path
                input_names=[INPUT],
                output_names=list(outputs),
                dynamic_axes={name: {0: "batch"} for name in (INPUT, *outputs)},
                dynamo=False,
            )
    except MemoryError:
        raise
    except Exception as error:  # a user's module may fail in any way while it is traced
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise FealError(f"torch cannot write this network as ONNX ({reason}).") from error
    expected = network(images)
    for name, tensor in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        found = OnnxGraph(content.getvalue(), threads=1, output=name)(images)
        close = _TOLERANCE * tensor.abs().max()
        if found.shape != tensor.shape or not (found - tensor).abs().max() <= close:
            raise FealError("The ONNX graph of this network computes other values than torch.")
    return content.getvalue()
