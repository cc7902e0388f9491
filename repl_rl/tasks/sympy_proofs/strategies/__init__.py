"""What demonstrations are made of: weighted tables of right and wrong scripts, one a family."""
