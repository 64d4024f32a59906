"""What is special about the small classifier."""

from __future__ import annotations

import torch

from feal.models.tiny_cnn import TinyCNN

BATCH = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_the_names_of_its_state_are_stable() -> None:
    assert list(TinyCNN(classes=2, channels=1).state_dict())[-8:] == [
        "blocks.12.weight",
        "blocks.13.weight",
        "blocks.13.bias",
        "blocks.13.running_mean",
        "blocks.13.running_var",
        "blocks.13.num_batches_tracked",
        "classifier.weight",
        "classifier.bias",
    ]


def test_dropout_acts_on_the_head_input_in_training_only() -> None:
    model = TinyCNN(classes=2, channels=3, params=TinyCNN.Params(dropout=0.5))
    trained = model.train().outputs(BATCH)
    assert (trained.head_input == 0).float().mean() > (trained.features == 0).float().mean() + 0.3
    tested = model.eval().outputs(BATCH)
    assert torch.equal(tested.head_input, tested.features)


def test_features_are_the_mean_of_the_last_convolution() -> None:
    model = TinyCNN(classes=2, channels=3).eval()
    output = model.outputs(BATCH)
    standard = torch.nn.functional.instance_norm(BATCH)
    torch.testing.assert_close(output.features, model.blocks(standard).mean(dim=(2, 3)))
    assert (output.deep >= 0).all()


def test_it_learns() -> None:
    torch.manual_seed(0)
    model, targets = TinyCNN(classes=2, channels=3), torch.arange(8) % 2
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(30):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(BATCH), targets).backward()
        optimizer.step()
    assert torch.equal(model(BATCH).argmax(dim=1), targets)


def test_a_colour_cast_and_another_contrast_change_nothing() -> None:
    model = TinyCNN(classes=2, channels=3).eval()
    cast = 0.3 * BATCH * torch.tensor([0.9, 0.5, 1.2]).reshape(3, 1, 1) + torch.tensor([0.1, 0.4, 0.0]).reshape(
        3, 1, 1
    )
    torch.testing.assert_close(model(cast), model(BATCH), rtol=1e-2, atol=1e-3)
