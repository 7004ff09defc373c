"""What people give: typed YAML and names of modules, and the one line that says what is wrong with them."""
