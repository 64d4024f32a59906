import pytest
import torch

from feal.models import device_named, on_device, threads


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
