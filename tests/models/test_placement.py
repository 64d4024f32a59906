import pytest
import torch

from feal.models import device_named, mixed_precision, on_device, threads


def test_auto_is_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, name in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert device_named("auto").type == name
        assert device_named("cpu").type == "cpu"


def test_images_keep_their_values_and_come_channels_last() -> None:
    images = torch.rand(2, 3, 8, 4)
    placed = on_device(images, torch.device("cpu"))
    assert torch.equal(placed, images)
    assert placed.is_contiguous(memory_format=torch.channels_last)


def test_threads_are_given_back_also_after_a_failure() -> None:
    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with pytest.raises(RuntimeError), threads(before + 1):
        raise RuntimeError
    assert torch.get_num_threads() == before


def test_what_is_no_image_keeps_its_form() -> None:
    features = torch.rand(5, 7)
    assert torch.equal(on_device(features, torch.device("cpu")), features)


def test_a_cpu_computes_in_full_precision() -> None:
    layer, given = torch.nn.Linear(3, 2), torch.rand(4, 3)
    with mixed_precision(torch.device("cpu")):
        assert torch.equal(layer(given), torch.nn.functional.linear(given, layer.weight, layer.bias))
        assert layer(given).dtype == torch.float32


@pytest.mark.parametrize("able", [True, False])
def test_a_gpu_that_computes_with_bfloat16_does(able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **options: able)
    monkeypatch.setattr(torch, "autocast", lambda device, **options: asked.update(device=device, **options))
    mixed_precision(torch.device("cuda"))
    assert asked == {"device": "cuda", "dtype": torch.bfloat16, "enabled": able}
