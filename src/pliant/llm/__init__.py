"""Language models: `pliant.LLM` (lm.py), the paged KV cache, chat sessions, tokenizers, chat templates, sampling, model downloads."""
