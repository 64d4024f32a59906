import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from feal.federation.aggregation import fedavg

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "e_fedavg.json").read_text())


def _tensor(entry: dict) -> torch.Tensor:
    dtype = getattr(torch, entry["dtype"].removeprefix("torch."))
    return torch.tensor(entry["values"], dtype=dtype).reshape(entry["shape"])


def test_golden_average_with_batchnorm() -> None:
    states = [{name: _tensor(entry) for name, entry in state.items()} for state in GOLDEN["locals"]]
    average = fedavg(states, GOLDEN["client_weights"])
    for name, exact in GOLDEN["exact_float64"].items():
        if not average[name].is_floating_point():
            assert average[name].item() == max(state[name].item() for state in states)
            continue
        truth = torch.tensor(exact, dtype=torch.float64).to(torch.float32)
        torch.testing.assert_close(average[name].flatten(), truth, rtol=1e-7, atol=1e-8)


def test_inputs_stay_as_they_are() -> None:
    states = [{"w": torch.ones(3)}, {"w": torch.zeros(3)}]
    fedavg(states, [1, 1])
    assert states[0]["w"].tolist() == [1, 1, 1]


def test_sums_in_float64() -> None:
    big, small = torch.tensor([1e8]), torch.tensor([1.0])
    average = fedavg([{"w": big}, {"w": small}, {"w": -big}], [1, 1, 1])
    assert average["w"].item() == pytest.approx(1 / 3, rel=1e-6)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.floats(0.1, 50))
def test_weights_count_by_proportion_and_equal_states_stay(weights: list[float], factor: float) -> None:
    states = [{"w": torch.arange(4.0)}] * len(weights)
    torch.testing.assert_close(fedavg(states, weights)["w"], torch.arange(4.0))
    varied = [{"w": torch.full((2,), float(k))} for k in range(len(weights))]
    scaled = fedavg(varied, [factor * weight for weight in weights])
    torch.testing.assert_close(fedavg(varied, weights)["w"], scaled["w"])


@pytest.mark.parametrize(
    ("states", "weights", "what"),
    [
        ([], [], "each state needs one weight"),
        ([{"w": torch.ones(1)}], [1, 2], "each state needs one weight"),
        ([{"w": torch.ones(1)}], [0], "not all zero"),
        ([{"w": torch.ones(1)}] * 2, [1, -1], "not negative"),
        ([{"w": torch.ones(1)}] * 2, [1, float("nan")], "finite"),
        ([{"w": torch.ones(1)}, {"v": torch.ones(1)}], [1, 1], "names"),
        ([{"w": torch.ones(1)}, {"w": torch.ones(2)}], [1, 1], "shape of w"),
    ],
)
def test_bad_input(states: list, weights: list, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        fedavg(states, weights)


def test_a_state_without_weight_may_hold_anything() -> None:
    average = fedavg([{"w": torch.ones(2)}, {"w": torch.full((2,), torch.nan)}], [1, 0])
    assert average["w"].tolist() == [1, 1]
