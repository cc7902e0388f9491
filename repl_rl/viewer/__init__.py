"""What looks at trajectories and runs: terminal, stepper, page. Nothing that trains imports it."""
