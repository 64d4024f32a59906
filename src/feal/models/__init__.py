"""Networks that give logits for training and features for selection."""

from feal.models import densenet, efficientnet, heads, lite, tiny_cnn, unet  # noqa: F401  (each registers its network)
from feal.models.base import MODELS as MODELS
from feal.models.base import ModuleAdapter as ModuleAdapter
from feal.models.base import Network as Network
from feal.models.base import Output as Output
from feal.models.base import pool_3x3 as pool_3x3
from feal.models.build import build_model as build_model
from feal.models.build import check_model_task as check_model_task
from feal.models.build import find_model as find_model
from feal.models.build import list_models as list_models
from feal.models.build import list_tasks as list_tasks
from feal.models.build import restore_model as restore_model
from feal.models.folding import fold_batch_norms as fold_batch_norms
from feal.models.frozen import SplitClassifier as SplitClassifier
from feal.models.frozen import Trunk as Trunk
from feal.models.heads import FrozenNetwork as FrozenNetwork
from feal.models.onnx import OnnxGraph as OnnxGraph
from feal.models.onnx import write_graph as write_graph
from feal.models.pretrained import build_initial_model as build_initial_model
from feal.models.pretrained import check_weights_source as check_weights_source
from feal.models.pretrained import load_weights as load_weights
from feal.models.pretrained import read_weights as read_weights
