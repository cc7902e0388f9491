"""Sealed kernels for a person's Jupyter client: a console, a notebook, nbclient, papermill."""
