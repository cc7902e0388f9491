"""What lines and answers are worth, and what each sampled token is credited with."""
