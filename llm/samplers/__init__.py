"""Samplers: one protocol (`llm.types.Sampler`), three implementations, and `make`, which chooses by a config.

`TransformersSampler` samples from the trained model itself, `VLLMSampler` from a copy of it in
vLLM, and `UniformSampler` gives random tokens without a model, for tests.
"""
