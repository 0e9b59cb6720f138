"""Where PyTorch has the functions that write operators in version 11 of ONNX's operators. There are none here."""
