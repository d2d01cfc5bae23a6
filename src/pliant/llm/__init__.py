"""Language models: `pliant.LLM` (lm.py), its cache and conversations, tokenisers, chat templates, sampling, and getting model files."""
