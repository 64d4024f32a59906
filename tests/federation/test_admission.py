"""What the images must be for a run to begin."""

import pytest

from feal.errors import FealError
from feal.federation.admission import check_images
from feal.federation.messages import JoinReply
from feal.settings import Settings


@pytest.mark.parametrize("model", ["unet-lite0", "unet"])
def test_a_frozen_encoder_takes_square_images_and_a_whole_network_any(model: str) -> None:
    facts = {"task": "segmentation", "classes": ["ground", "polyp"], "channels": 3}
    wide = JoinReply(key="any", site="alder", height=64, width=96, **facts)
    square = wide.model_copy(update={"width": 64})
    whole = Settings(dataset="any", model=model)
    tail = whole.model_copy(update={"training": whole.training.model_copy(update={"trainable": "tail"})})
    check_images(whole, wide)
    if model == "unet-lite0":
        check_images(tail, square)
    sentence = {"unet-lite0": "of square images, and these are 64 x 96: prepare them", "unet": "UNet has no tail"}
    with pytest.raises(FealError, match=sentence[model]):
        check_images(tail, wide)
