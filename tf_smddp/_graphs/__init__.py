"""How ops are made, what pairs them with the other ranks' ops, and in which order a graph runs them."""
