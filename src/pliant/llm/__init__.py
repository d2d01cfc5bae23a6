"""Language models: `pliant.LLM` (lm.py), its cache and conversations, tokenizers, chat templates, sampling, and getting model files."""
