"""Tasks, splits and batches (pure torch) and the datamodule that serves them."""
