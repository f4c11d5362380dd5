"""The LightningModules: one training recipe, one class per network."""
