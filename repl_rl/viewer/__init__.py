"""Views of trajectories and runs: terminal, stepper, page. Nothing that trains imports them."""
