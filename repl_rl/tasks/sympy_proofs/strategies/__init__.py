"""Strategies of demonstrations: weighted tables of right and wrong scripts, one a family."""
