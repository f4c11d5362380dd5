"""Statistics over finished runs: cells of equal settings, time to grok with censoring, paired tests, claims."""
