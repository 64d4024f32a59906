"""What a run leaves to take home: predictions for pictures, and the model itself."""

from feal.inference.exporting import Format, export
from feal.inference.predicting import Audience, Predicted, predict_folder
from feal.inference.trained import Prediction, TrainedModel, open_trained

__all__ = [
    "Audience",
    "Format",
    "Predicted",
    "Prediction",
    "TrainedModel",
    "export",
    "open_trained",
    "predict_folder",
]
