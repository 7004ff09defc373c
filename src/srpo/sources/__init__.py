"""Where questions come from: pinned files, tasks of reasoning-gym, the toys' families."""
