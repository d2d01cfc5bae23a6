"""Tensors of small codes with shared scales: the formats as data, and what their bytes mean."""
