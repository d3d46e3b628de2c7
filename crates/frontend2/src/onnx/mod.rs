//! Reads ONNX models.
