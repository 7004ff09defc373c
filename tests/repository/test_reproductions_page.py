"""The control experiments of the paper's scale, and the pages that repeat published numbers."""

import pandas as pd
from board import averages, reproductions
from paths import ROOT

from srpo.experiment.compose import experiment_file, load_experiment
from srpo.experiment.step_times import paper_step_seconds, steps_in_seconds

GPUS, OTHERS = ((ROOT / "docs" / name).read_text() for name in ("gpus.md", "reproductions.md"))
ROWS = reproductions()
PAPER = pd.read_csv(ROOT / "reports" / "reference" / "table1_main.csv")
CONTROLS = load_experiment(experiment_file("paper-controls"))


def flat(text: str) -> str:
    return " ".join(text.split())


def paper(model: str, method: str, hours: int = 10, benchmark: str = "average") -> float:
    key = {"model": f"Qwen3-{model}", "method": method, "benchmark": benchmark, "budget_hours": hours}
    (row,) = PAPER[(PAPER[list(key)] == pd.Series(key)).all(axis=1)]["avg_at_16"]
    return row


def average(source: str, method: str, model: str = "8B", run: str = "") -> float:
    found = averages(ROWS)
    model = model if "-" in model else f"Qwen3-{model}"
    key = {"source": source, "method": method, "model": model, "run": run}
    (row,) = found[(found[list(key)] == pd.Series(key)).all(axis=1)]["score"]
    return row


def table(mark: str, page: str) -> list[list[str]]:
    """The cells of the page's table after a mark, without its head."""
    lines = page.split(f"<!-- {mark} -->\n\n")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_control_is_on_the_benchmarks_with_the_largest_lead():
    leads = {b: paper("8B", "srpo", 10, b) - paper("8B", "grpo", 10, b) for b in {*PAPER["benchmark"]} - {"average"}}
    largest = sorted(leads, key=lambda name: -leads[name])[:2]
    assert {*largest} == {*CONTROLS.benchmarks} == {"physics", "chemistry"}
    text = f"{leads['chemistry']:.1f} and {leads['physics']:.1f} points"
    assert text in flat((experiment_file("paper-controls")).read_text().replace("#", ""))


def test_all_methods_of_the_control_take_srpos_steps():
    assert [*CONTROLS.training.clock.step_seconds.values()] == [paper_step_seconds()["srpo"]] * 3


def test_the_control_changes_nothing_but_settings():
    methods = CONTROLS.methods

    def settings(name: str) -> tuple[float, int]:
        return methods[name].learning_rate, methods[name].mini_batch_questions

    def rest(name: str) -> dict:
        return methods[name].model_dump(exclude={"name", "title", "learning_rate", "mini_batch_questions"})

    paper_methods = load_experiment(experiment_file("paper")).methods
    assert settings("grpo_at_srpo_settings") == settings("srpo") == settings("sdpo_at_srpo_settings")
    assert settings("srpo_at_grpo_settings") == settings("grpo") != settings("srpo")
    assert rest("grpo_at_srpo_settings") == rest("grpo")
    assert rest("srpo_at_grpo_settings") == rest("srpo")
    own = {"name", "title", "learning_rate", "mini_batch_questions"}
    assert rest("sdpo_at_srpo_settings") == paper_methods["sdpo"].model_dump(exclude=own)


def test_the_first_day_has_the_untrained_scores():
    rows = table("untrained", GPUS)
    bases = ROWS[ROWS["method"] == "base"]
    for name, *cells in rows:
        benchmark = {"average": "average", "tool use": "tooluse"}.get(name, name)
        expected = []
        for model, sources in (("8B", ("VERPO", "DRIFT")), ("4B", ("VERPO",))):
            expected.append(paper(model, "base", 0, benchmark))
            for source in sources:
                if benchmark == "average":
                    value = average(source, "base", model)
                else:
                    here = bases[(bases["source"] == source) & (bases["model"] == f"Qwen3-{model}")]
                    (value,) = here[here["benchmark"] == benchmark]["score"]
                expected.append(value)
        assert cells == [f"{value:.1f}" for value in expected], name
    assert [row[0] for row in rows] == ["chemistry", "physics", "biology", "materials", "tool use", "average"]


def test_the_papers_steps_and_the_broken_run():
    broken = ROWS[ROWS["run"] == "v10"].set_index("when")["score"]
    best, last = broken["best"], broken["last"]
    assert f"of SDCL has {best} % in its highest and {last} % in its last validation." in flat(OTHERS)
    steps = {h: [int(steps_in_seconds(s, 3600 * h)) for s in paper_step_seconds().values()] for h in (5, 10)}
    assert "{} steps of GRPO, {} of SDPO and {} of SRPO".format(*steps[5]) in flat(GPUS)
    assert "Ten hours are {}, {} and {} steps.".format(*steps[10]) in flat(GPUS)
    leads = [
        sum(paper("4B", "srpo", h, b) - paper("4B", "grpo", h, b) for b in ("chemistry", "biology")) for h in (5, 10)
    ]
    assert "by {:.1f} points after 5 hours and by {:.1f} after 10".format(*(x / 2 + 1e-9 for x in leads)) in flat(GPUS)
