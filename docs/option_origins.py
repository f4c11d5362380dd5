"""Where the default of every option comes from; make_options.py fails on an option that is not here."""

LEGEND = {
    "P": "arXiv:2505.15624, with the section or equation",
    "torch": "the default of torch",
    "Lightning": "the default of Lightning",
    "field": "what the runs of a field's papers share, named",
    "method": "the value that the source of a method names",
    "off": "what the option adds is off",
    "data": "follows from the data or from other options",
    "ours": "chosen here",
    "cost": "chosen here, to keep the default run cheap",
    "—": "has none",
}

_NAMES = {
    "P 3.2": "data.task data.p",
    "P 4.2": "data.split data.frac_train",
    "P 5": "model.lr model.weight_decay model.optimizer data.batch_size grokking.mem_threshold",
    "P 3.2, eq. 2": "model.d_model model.hidden model.depth model.combine",
    "P 3.2, eq. 1": "model.input_scale",
    "P Prop. 4.1; 1 is one rate for all, plain Adam": "model.c",
    "P C.1 takes power; Lanczos finds the same sooner": "hessian.method",
    "P C.1": "hessian.blocks",
    "P Fig. 5, ends of its grid": "adaptive_c.min_c adaptive_c.max_c",
    "P eq. 24, factor 1": "adaptive_c.kappa",
    "field, arXiv:2201.02177": "model.n_layers model.n_heads model.layer_norm model.d_mlp",
    "field, arXiv:2301.05217": "model.activation",
    "field, as the default test of grokking papers": "grokking.grok_threshold audit.threshold",
    "method, arXiv:2405.20233": "model.gradient.alpha model.gradient.lam model.gradient.window",
    "method, torch.optim.Muon": "model.muon_momentum",
    "method, arXiv:2607.06639": "model.clamp.rho audit.epsilon",
    "torch": "model.betas model.momentum model.loss model.embedding.inputs model.embedding.scale model.init_scale "
    "trainer.logger.log_model",
    "off": "tokens.every_n_steps tokens.log_points_per_decade sweep.cold data.download data.tokenizer compare.final "
    "model.warmup_steps model.residual model.gradient.grokfast model.gradient.orthogonal model.clamp.norm "
    "model.freeze_embedding_at model.embedding.sigma_matched model.embedding.rank model.embedding.source model.tied "
    "model.compile data.exclude_zero data.sampler_gamma adaptive_c.every_n_steps adaptive_c.smoothing "
    "adaptive_c.start_step grokking.stop_after_steps ntk.every_n_steps ntk.log_points_per_decade hessian.subset "
    "ckpt_path sweep.dry_run sweep.retry_failed sweep.max_runs compare.partial compare.pool compare.csv compare.json "
    "interpolator.every_n_steps interpolator.log_points_per_decade "
    "compare.figure report.partial audit.json audit.no_group audit.resumed sweep.gpus",
    "data": "data.cache_dir "
    "model.muon_lr model.weight_decay_embedding model.weight_decay_first_layer model.weight_decay_rest "
    "model.loss_dtype grokking.part record.experiment record.run_id trainer.logger.project trainer.logger.save_dir "
    "trainer.logger.name trainer.logger.group spectrum.matrices fourier.progress_losses compare.by compare.baseline "
    "compare.threshold compare.mem_threshold compare.part compare.sustain_evaluations report.out report.by "
    "sweep.threads sweep.name sweep.workers audit.acc audit.rank audit.seed",
    "field, arXiv:2505.20172": "data.size data.rank",
    "P replies, C11": "model.patch_size",
    "field, arXiv:2010.11929": "model.pool",
    "ours": "data.source data.folder data.verify data.path "
    "data.vocab_size data.context_length tokens.per_token trainer.logger.figures "
    "model.tolerance model.width data.n_features data.n_nonzero data.n_train data.n_val data.n_test "
    "data.n_teacher model.decay_scales_with_c data.skew data.split_seed data.order_seed data.sampler "
    "data.sampler_decay "
    "grokking.sustain_evaluations checkpoint.every_n_steps numerics.nonfinite hessian.k hessian.dtype hessian.seed "
    "hessian.cold_every hessian.warm_start hessian.density hessian.max_krylov fourier.threshold ntk.n_probe ntk.seed "
    "health.factor health.window health.floor two_phase.epsilon audit.phase_epsilon record.root trainer.logger.mode "
    "trainer.logger.init_timeout trainer.logger.finish_timeout trainer.logger trainer.max_steps "
    "trainer.val_check_interval trainer.check_val_every_n_epoch trainer.num_sanity_val_steps "
    "trainer.enable_model_summary trainer.log_every_n_steps trainer.use_distributed_sampler seed_everything "
    "compare.alpha compare.draws compare.seed report.draws report.formats sweep.root sweep.seed audit.step",
    "cost": "data.n_measured data.train_rows_evaluated data.train_rows_measured "
    "hessian.every_n_steps hessian.log_points_per_decade hessian.tol hessian.chunk_size spectrum.every_n_steps "
    "spectrum.log_points_per_decade spectrum.large_every_n_steps balance.every_n_steps balance.log_points_per_decade "
    "fourier.every_n_steps fourier.log_points_per_decade health.every_n_steps health.log_points_per_decade "
    "two_phase.every_n_steps two_phase.log_points_per_decade",
    "—": "compare.paths report.paths audit.paths sweep.file trainer.logger.entity trainer.logger.tags "
    "trainer.logger.notes",
    "Lightning": "weights_only trainer.accelerator trainer.strategy trainer.devices trainer.num_nodes "
    "trainer.precision trainer.callbacks trainer.fast_dev_run trainer.max_epochs trainer.min_epochs trainer.min_steps "
    "trainer.max_time trainer.limit_train_batches trainer.limit_val_batches trainer.limit_test_batches "
    "trainer.limit_predict_batches trainer.overfit_batches trainer.enable_checkpointing trainer.enable_progress_bar "
    "trainer.accumulate_grad_batches trainer.gradient_clip_val trainer.gradient_clip_algorithm trainer.deterministic "
    "trainer.benchmark trainer.inference_mode trainer.profiler trainer.detect_anomaly trainer.barebones "
    "trainer.plugins trainer.sync_batchnorm trainer.reload_dataloaders_every_n_epochs trainer.default_root_dir "
    "trainer.enable_autolog_hparams trainer.model_registry",
}

ORIGINS = {name: origin for origin, names in _NAMES.items() for name in names.split()}
"""``group.option`` → origin."""

_TWO_PHASES = {
    f"{cls}.{name}": origin
    for cls in ("DiagonalLinear", "MatrixFactorization", "ReLUStudent")
    for name, origin in {
        "lr": "ours", "weight_decay": "ours", "init_scale": "ours", "depth": "ours",
        "hidden": "field, arXiv:2505.20172",
        "optimizer": "field, arXiv:2505.20172 (gradient flow)",
    }.items()
}  # fmt: skip
_REGRESSION = {
    f"{cls}.{name}": "ours"
    for cls in ("SparseRegression", "MatrixCompletion", "TeacherStudent")
    for name in ("batch_size", "frac_train")
}

_BEYOND = {
    "ViT.d_model": "P replies, C11", "ViT.n_layers": "P replies, C11", "ViT.n_heads": "P replies, C11",
    "ViT.d_mlp": "field, arXiv:2010.11929", "ViT.lr": "ours", "ViT.weight_decay": "off",
    "LanguageModel.d_model": "ours", "LanguageModel.n_layers": "ours", "LanguageModel.n_heads": "ours",
    "LanguageModel.d_mlp": "ours", "LanguageModel.lr": "ours", "LanguageModel.weight_decay": "off",
    "ImageDataModule.batch_size": "ours", "ImageDataModule.n_train": "data", "ImageDataModule.n_val": "ours",
    "TextDataModule.batch_size": "ours",
}  # fmt: skip

SPECIAL = {
    **_BEYOND,
    "Transformer.lr": "ours",
    "Transformer.d_model": "field, arXiv:2201.02177",
    **_TWO_PHASES,
    **_REGRESSION,
}
"""``Class.option`` → origin, where a class has another default than the others."""
