"""What stops working where a known file has no code for the GPU, in the words that people use for it."""

import re

_COSTS = (
    (r"flash_ops|_vllm_fa3|fa3", "FlashAttention 3 fails at its first call; another attention backend is needed"),
    (r"flash_?mla", "FlashMLA fails at its first call: no MLA decoding through it"),
    (r"common_ops", "every kernel of sgl_kernel fails at its first call"),
    (r"infllm_ops", "InfLLM sparse attention fails at its first call"),
    (r"deep_ep|nccl_ep", "DeepEP expert parallelism fails at its first call"),
    (r"nccl_m2n", "the M2N extension of NCCL fails at its first call"),
    (r"mscclpp", "MSCCL++ all-reduce fails at its first call"),
    (r"libtorch_cuda", "PyTorch itself fails at its first operation"),
    (r"libnccl\.", "NCCL collectives fail"),
    (r"libcufftw", "FFTW's interface of cuFFT fails"),
    (r"_qutlass", "QuTLASS quantised matrix products fail at their first call"),
)


def cost_of(path: str) -> str:
    name = path.rpartition("/")[2].lower()
    known = (text for pattern, text in _COSTS if re.search(pattern, name))
    return next(known, 'its kernels fail at their first call: "no kernel image is available"')
