"""The cost of passes against a count, one scalar product at a time."""

from srpo.experiment.flops import ModelCost

LAYERS, HEADS, HEAD_DIM, PARAMETERS = 2, 3, 5, 1000


def count_flops(first: int, last: int) -> int:
    """Multiply-adds, two FLOPs each, of the tokens at positions first..last-1, one scalar product at a time."""
    total = 0
    for position in range(first, last):
        total += 2 * PARAMETERS
        for _ in range(LAYERS * HEADS):
            for _attended in range(position + 1):
                total += 2 * HEAD_DIM  # query . key
                total += 2 * HEAD_DIM  # probability * value
    return total


COST = ModelCost(PARAMETERS, LAYERS * HEADS * HEAD_DIM)


def test_forward_flops_equal_a_count():
    assert COST.forward_flops([1]) == count_flops(0, 1)
    assert COST.forward_flops([7, 12]) == count_flops(0, 7) + count_flops(0, 12)
    assert COST.forward_flops([]) == 0


def test_decoding_behind_a_cached_prompt_counts_the_response_only():
    assert COST.decode_flops([7, 7], [4, 9]) == count_flops(7, 11) + count_flops(7, 16)
