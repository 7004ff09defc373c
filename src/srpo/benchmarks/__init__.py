"""Questions, where they come from, how they are asked and how an answer is scored."""
