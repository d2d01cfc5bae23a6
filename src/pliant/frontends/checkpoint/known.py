"""Keys of a `config.json` that the reader of a family does not ask for.

`SILENT` are about training, text generation, other uses of the model, or the file: they change nothing. `NEUTRAL` describe the model, and
the value given here is the one that is computed. Any other key is refused by name.
"""

from __future__ import annotations

from typing import Any

_ABOUT = (
    "_name_or_path architectures attn_implementation _attn_implementation _attn_implementation_autoset auto_map dtype id2label "
    "is_llama_config label2id model_type problem_type tokenizer_class torch_dtype transformers.js_config transformers_version "
    "unsloth_fixed unsloth_version"
)
_TRAINING = (
    "attention_dropout attn_pdrop embd_pdrop resid_pdrop hidden_dropout initializer_range gradient_checkpointing pretraining_tp "
    "use_bfloat16 classifier_dropout router_aux_loss_coef output_router_logits"
)
_RUNNING = (
    "cache_implementation chunk_size_feed_forward output_attentions output_hidden_states output_scores return_dict "
    "return_dict_in_generate torchscript use_cache _flash_attn_2_enabled use_flash_attn pruned_heads"
)
_GENERATION = (
    "bad_words_ids begin_suppress_tokens bos_token_id decoder_start_token_id diversity_penalty do_sample early_stopping "
    "encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task forced_bos_token_id "
    "forced_eos_token_id length_penalty max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences "
    "pad_token_id prefix remove_invalid_values repetition_penalty sep_token_id suppress_tokens task_specific_params temperature "
    "tf_legacy_loss top_k top_p typical_p"
)
SILENT = frozenset(f"{_ABOUT} {_TRAINING} {_RUNNING} {_GENERATION}".split())
NEUTRAL: dict[str, Any] = {
    "add_cross_attention": False,
    "attention_bias": False,
    "full_attn_mod": 1,  # of phi
    "interpolate_factor": 1,
    "is_decoder": False,
    "is_encoder_decoder": False,
    "lm_head_bias": False,
    "mlp_bias": False,
    "rope_interleaved": False,
    "swiglu_alpha": 1.702,  # of gpt-oss
    "swiglu_limit": 7.0,
    "tie_encoder_decoder": False,
    "use_bidirectional_attention": False,
    "use_mrope": False,
    "use_sliding_window": False,
}
