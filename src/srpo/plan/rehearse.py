"""A rehearsal: an experiment that takes three steps of every method and model of another one.

It shows that the path works on a machine, and ``srpo plan --from`` takes its seconds. The first step compiles kernels;
the second and third are timed. Methods keep their learning rate, because a model that a large rate has changed writes
other responses, and training takes other seconds. One further method, :data:`CHECK`, changes the weights of
each model visibly: a server that missed an update shows in its third step.
"""

from srpo.experiment.config import Block, Experiment, short_name

STEPS = 3

CHECK, CHECK_RATE = "weights_check", 1e-4
"""The method of the check, and its learning rate: after one update responses differ in bfloat16 (20 times SRPO's)."""

ROLLOUTS = 2
"""Of each question in a validation and in an evaluation."""


def rehearsal(experiment: Experiment) -> Experiment:
    """The rehearsal of an experiment, named ``NAME-rehearsal``.

    Each model has its methods on its first benchmark with its first seed, and :data:`CHECK`, which is its first method
    at another rate. The first update of a run has a rate of 0 (a warm-up of one step), so the first two steps have the
    untrained model's responses, and the third those after one update at the method's own rate.
    """
    blocks, methods = [], dict(experiment.methods)
    check = {"name": CHECK, "title": "Check of changed weights", "learning_rate": CHECK_RATE}
    for model in dict.fromkeys(model for block in experiment.matrix for model in block.models if block.methods):
        of_model = [block for block in experiment.matrix if model in block.models and block.methods]
        names = dict.fromkeys(name for block in of_model for name in block.methods)
        first = of_model[0]
        methods.setdefault(CHECK, methods[next(iter(names))].model_copy(update=check))
        blocks.append(
            Block(models=[model], benchmarks=first.benchmarks[:1], methods=[*names, CHECK], seeds=first.seeds[:1])
        )
    models = {name for block in blocks for name in block.models}
    benchmarks = {short_name(name) for block in blocks for name in block.benchmarks}
    training, validation = experiment.training, experiment.training.validation
    label, seconds = [*training.budget_seconds.items()][-1]
    short = {
        "warmup_steps": 1,
        "validate_every": 1,  # the last validation and checkpoint compile nothing
        "validation": validation.model_copy(update={"rollouts": ROLLOUTS}),
        "budget_seconds": {label: seconds},
        "max_steps": STEPS,
    }
    changes = {
        "name": f"{experiment.name}-rehearsal",
        "title": f"{experiment.title}, rehearsed",
        "notice": f"A run is {STEPS} steps. No score of this experiment means anything.",
        "comparable_with_paper": False,
        "matrix": blocks,
        "methods": methods,
        "models": {name: each for name, each in experiment.models.items() if name in models},
        "benchmarks": {name: each for name, each in experiment.benchmarks.items() if name in benchmarks},
        "training": training.model_copy(update=short),
        "evaluation": experiment.evaluation.model_copy(update={"rollouts": ROLLOUTS}),
        "variants": {},
        "tuned": None,
    }
    return Experiment.model_validate(experiment.model_copy(update=changes).model_dump(mode="json"))
