"""Adam whose moments are three tensors, whatever the number of parameters."""

import torch
from torch.optim.adam import adam

from feal.models import Network
from feal.tensors import Tensors

BETAS, EPSILON = (0.9, 0.999), 1e-8
FUSED = ("cuda",)
"""Kinds of device that update by one kernel; on a CPU it would change the last bits and gain less than 1 %."""


class Adam:
    """Update a network's parameters as `torch.optim.Adam` does; on a CPU, bit for bit.

    torch's class imports its compiler with the first optimizer, 1.4 s of every process, and keeps the state in
    three tensors a parameter, of which a file of B0 would have 640.

    Args:
        network: on the device where it is trained.
        lr: the learning rate.
        weight_decay: weight of the squared parameters in the loss.
        moments: what `collect_moments` returned in an earlier training of the same network; None to start without.
    """

    def __init__(
        self, network: Network, *, lr: float, weight_decay: float, moments: Tensors | None = None
    ) -> None:
        self._parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self._lr, self._weight_decay = lr, weight_decay
        sizes = [parameter.numel() for parameter in self._parameters]
        device = self._parameters[0].device
        self._is_fused = device.type in FUSED
        blank = {"exp_avg": sum(sizes), "exp_avg_sq": sum(sizes), "step": len(sizes)}
        self._flat = {name: torch.zeros(size, device=device) for name, size in blank.items()}
        if not self._is_fused:
            self._flat["step"] = self._flat["step"].cpu()
        for name, tensor in (moments or {}).items():
            self._flat[name].copy_(tensor)
        self._means, self._squares = (
            [
                part.as_strided(parameter.size(), parameter.stride())  # a fused kernel takes equal strides only
                for part, parameter in zip(self._flat[name].split(sizes), self._parameters, strict=True)
            ]
            for name in ("exp_avg", "exp_avg_sq")
        )
        self._steps = list(self._flat["step"])

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        used = [index for index, parameter in enumerate(self._parameters) if parameter.grad is not None]
        adam(
            [self._parameters[index] for index in used],
            [gradient for parameter in self._parameters if (gradient := parameter.grad) is not None],
            [self._means[index] for index in used],
            [self._squares[index] for index in used],
            [],
            [self._steps[index] for index in used],
            foreach=False,
            fused=self._is_fused,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            eps=EPSILON,
            maximize=False,
            lr=self._lr,
            weight_decay=self._weight_decay,
        )

    def collect_moments(self) -> dict[str, torch.Tensor]:
        """Return the means of gradients and of their squares [all parameters], and the steps of each parameter."""
        return {name: tensor.cpu() for name, tensor in self._flat.items()}
