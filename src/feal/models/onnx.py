"""ONNX graphs: write networks as such, and run them by onnxruntime, up to twice as fast as torch on a CPU."""

import difflib
import io
import warnings
from collections.abc import Sequence
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
    """A graph from images to tensors, run by onnxruntime on the CPU.

    Results are the same bits in every process with the same number of threads on the same kind of processor.

    Args:
        source: a file, or its content.
        threads: number of threads.
        outputs: names of tensors, of outputs or within the graph: nothing beyond them is computed. By default
            the first output.

    Raises:
        FealError: it is no such graph, it takes more than images, or it has no such tensor.
    """

    def __init__(self, source: Path | bytes, *, threads: int, outputs: Sequence[str] = ()) -> None:
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
            content = _keep_outputs(content, outputs, name=name) if outputs else content
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except FealError:
            raise
        except Exception as error:  # onnxruntime has an exception for every kind of failure, without a common base
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise FealError(
                f"{name} is not an ONNX graph that onnxruntime {version('onnxruntime')} can run ({reason}): "
                "give another one."
            ) from error
        inputs = self._session.get_inputs()
        if len(inputs) != 1:
            names = ", ".join(node.name for node in inputs)
            raise FealError(f"{name} takes {names or 'nothing'}: give a graph that takes images alone.")
        self._input = inputs[0].name
        self._outputs = list(outputs) or [self._session.get_outputs()[0].name]
        size = inputs[0].shape[-1]
        self.size = size if isinstance(size, int) else None
        """Width of the images that it takes; None if it takes any."""

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return the first output of images [B, channels, H, W]."""
        return self.run(images)[0]

    def run(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Return every output of images [B, channels, H, W]."""
        outputs = self._session.run(self._outputs, {self._input: images.contiguous().numpy()})
        return [torch.from_numpy(output) for output in outputs]


def _keep_outputs(content: bytes, outputs: Sequence[str], *, name: str) -> bytes:
    """Return a graph whose outputs are these tensors of it, so that onnxruntime leaves out what lies beyond."""
    import onnx

    model = onnx.load_model_from_string(content)
    known = {tensor for node in model.graph.node for tensor in node.output if tensor}
    missing = [tensor for tensor in outputs if tensor not in known]
    if missing:
        near = difflib.get_close_matches(missing[0], known, n=3) or [node.name for node in model.graph.output]
        raise FealError(f"{name} has no output {missing[0]}: the nearest are {', '.join(near)}.")
    declared = {node.name: node for node in model.graph.output}
    kept = [declared.get(tensor) or onnx.helper.make_empty_tensor_value_info(tensor) for tensor in outputs]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    written: bytes = model.SerializeToString()
    return written


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
        found = OnnxGraph(content.getvalue(), threads=1, outputs=[name])(images)
        close = _TOLERANCE * tensor.abs().max()
        if found.shape != tensor.shape or not (found - tensor).abs().max() <= close:
            raise FealError("The ONNX graph of this network computes other values than torch.")
    return content.getvalue()
