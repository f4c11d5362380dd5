"""Where numbers go: the local run record and W&B."""
