"""Code that runs in the fork server and in its kernels, beside the lines that somebody writes."""
