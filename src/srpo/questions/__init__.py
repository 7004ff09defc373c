"""Questions: how they are asked, how an answer is scored, and the toys' families."""
