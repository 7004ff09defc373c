"""How a question is asked, how an answer is scored, and what makes the toys' questions."""
