"""The toys: invented questions, and tokenizer and warm start of tiny models. A model of the hub needs none of it."""
