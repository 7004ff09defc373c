# Paths in a module. Snakemake adds the module's prefix to inputs, outputs and logs, but not to parameters and captions.


def with_prefix(path):
    """A path as jobs see it: below the prefix, if another workflow imports this one as a module with a prefix."""
    return str(workflow.modifier.path_modifier.modify(str(path)))


def with_caption(path, category):
    """An output that the workflow's report shows, with the computed caption in the .rst file next to it."""
    caption = str(Path(with_prefix(path)).with_suffix(".rst").absolute())
    labels = {"name": path.stem.replace("_", " "), "format": path.suffix[1:]}
    return report(path, caption=caption, category=category, labels=labels)
