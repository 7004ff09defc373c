"""Which questions a step asks."""

import random

from srpo.ground.seeds import derive_seed


def questions_of_step(step: int, questions: int, per_batch: int, seed: int) -> list[int]:
    """Indices of a step's questions: a fresh shuffle each epoch, the last incomplete batch dropped.

    It depends only on the step, so a resumed run needs no state of the data.
    """
    batches = questions // per_batch
    epoch, batch = divmod(step - 1, batches)
    order = list(range(questions))
    random.Random(derive_seed("question order", seed, epoch)).shuffle(order)
    return order[batch * per_batch : (batch + 1) * per_batch]
