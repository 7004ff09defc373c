"""Where questions come from: pinned files, data sets of the hub, tasks of reasoning-gym, the toys' families."""
