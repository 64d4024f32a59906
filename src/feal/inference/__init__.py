"""What a run leaves to take home: predictions for pictures, and the model itself."""

from feal.inference.export import Format as Format
from feal.inference.export import export_model as export_model
from feal.inference.model import Prediction as Prediction
from feal.inference.model import TrainedModel as TrainedModel
from feal.inference.model import load_model as load_model
from feal.inference.predict import PredictionCallback as PredictionCallback
from feal.inference.predict import PredictionSummary as PredictionSummary
from feal.inference.predict import predict_images as predict_images
