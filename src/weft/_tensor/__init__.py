"""What users hold: tensors and the functions over them."""
