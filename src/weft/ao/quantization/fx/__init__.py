"""The parts of graph-mode quantization: fusion, observers and conversion of graphs."""
