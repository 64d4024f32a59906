"""What a run leaves to take home: predictions for pictures, and the model itself."""

from feal.inference.export import Format, export_model
from feal.inference.model import Prediction, TrainedModel, load_model
from feal.inference.predict import PredictionCallback, PredictionSummary, predict_images

__all__ = [
    "Format",
    "Prediction",
    "PredictionCallback",
    "PredictionSummary",
    "TrainedModel",
    "export_model",
    "load_model",
    "predict_images",
]
