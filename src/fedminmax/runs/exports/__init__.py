"""A trained model for other programs: ONNX and MLflow."""
