"""Block-quantized tensors (small codes with shared scales): the formats as data, and their encoding and decoding."""
