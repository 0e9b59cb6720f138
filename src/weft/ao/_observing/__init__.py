"""How grids are chosen: observers, fake quantization, and which of them a layer has. `ao.quantization` exports it."""
