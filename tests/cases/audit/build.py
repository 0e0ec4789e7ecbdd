"""Builds the binaries of this folder anew with nvcc and records what cuobjdump says of them.

    python -m venv V && V/bin/pip install 'cuda-toolkit[nvcc,cudart]==13.0.*' nvidia-cuda-nvcc==13.0.88 \
        nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-cuobjdump==13.5.37
    V/bin/python build.py [FOLDER]
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

TOOLKIT = Path(sysconfig.get_path("purelib"), "nvidia", "cu13")
LINKED = ["-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-Xlinker", "-s", f"-L{TOOLKIT / 'lib'}"]
BARE = ["g++", "-shared", "-fPIC", "-s", "-nostdlib", "-fno-exceptions", "-Wl,-z,noseparate-code"]

INCREMENT = """
__global__ void increment(float* values) { values[threadIdx.x] += 1.0f; }
extern "C" void run_increment(float* values) { increment<<<1, 32>>>(values); }
"""
DOUBLE = """
__global__ void twice(float* values) { values[threadIdx.x] *= 2.0f; }
extern "C" void run_twice(float* values) { twice<<<1, 32>>>(values); }
"""
GUARDED = """
#define TEN(what) what what what what what what what what what what
__global__ void guarded(float* values) {
#if __CUDA_ARCH__ < 1200
  float x = values[threadIdx.x];
  int n = 0;
  TEN(TEN(TEN(TEN(x = x * values[n] + n; n += 3;))))
  values[threadIdx.x] = x;
#endif
}
extern "C" void run_guarded(float* values) { guarded<<<1, 32>>>(values); }
"""
DATA = '__asm__(".section %s,\\"a\\"\\n.balign 8\\n.incbin \\"%s\\"\\n.previous");\n'
C10 = "namespace c10 { struct Device { void set(int); }; void Device::set(int) {} int count() { return 1; } }\n"
FITS = 'namespace c10 { int count(); } extern "C" int fits() { return c10::count(); }\n'
OTHER = (
    "namespace c10 { int count(); struct Device { void set(int); void move(long); }; }\n"
    'extern "C" int other() { c10::Device d; d.set(1); d.move(2); return c10::count(); }\n'
)


def code(*archs: str) -> list[str]:
    """`120a` is SASS, `ptx120` PTX."""
    made = []
    for arch in archs:
        bare = arch.removeprefix("ptx")
        made += ["-gencode", f"arch=compute_{bare},code={'compute' if arch != bare else 'sm'}_{bare}"]
    return made


class Builder:
    def __init__(self, out: Path, scratch: Path) -> None:
        self.out, self.scratch = out, scratch

    def run(self, *command: str | Path) -> str:
        done = subprocess.run([str(c) for c in command], cwd=self.scratch, check=True, capture_output=True, text=True)
        return done.stdout

    def source(self, name: str, text: str) -> Path:
        path = self.scratch / name
        path.write_text(text)
        return path

    def nvcc(self, *options: str | Path) -> None:
        self.run(TOOLKIT / "bin" / "nvcc", *options)

    def shared(self, name: str, *options: str, texts: tuple[str, ...] = (INCREMENT,)) -> None:
        sources = [self.source(f"unit{n}.cu", text) for n, text in enumerate(texts)]
        self.nvcc(*LINKED, *options, *sources, "-o", self.out / name)

    def bare(self, name: str, text: str, *options: str) -> None:
        self.run(*BARE, self.source(f"{name}.cpp", text), "-o", self.out / name, *options)


def build(b: Builder) -> None:
    for arch in ("120", "120a", "120f"):
        b.shared(f"sm_{arch}.so", *code(arch))
    b.shared("family_ptx.so", *code("120f", "ptx120f"))
    b.shared("several.so", *code("80", "90a", "100f", "120a", "ptx90"), texts=(INCREMENT, DOUBLE))
    b.shared("older.so", *code("80", "ptx80"))
    b.shared("lz4.so", *code("80", "120", "ptx120"), "-compress-mode=speed")
    b.shared("zstd.so", *code("80", "120", "ptx120"), "-compress-mode=size")
    b.shared("stub.so", *code("90", "120"), "-compress-mode=size", texts=(GUARDED,))
    build_partial(b)
    build_relocatable(b)
    build_elsewhere(b)
    for arch in ("90a", "100f", "120", "120a"):
        b.nvcc("-cubin", f"-arch=sm_{arch}", b.source("unit.cu", INCREMENT), "-o", b.out / f"sm_{arch}.cubin")
    b.nvcc("-ptx", "-arch=compute_120a", b.source("unit.cu", INCREMENT), "-o", b.out / "sm_120a.ptx")
    b.bare("none.so", 'extern "C" int one() { return 1; }\n')
    build_torch(b)


def build_partial(b: Builder) -> None:
    """One unit for both archs, one that forgot the newer."""
    both, older = b.source("both.cu", INCREMENT), b.source("older.cu", DOUBLE)
    b.nvcc("-c", "-Xcompiler", "-fPIC", *code("90", "120"), both, "-o", "both.o")
    b.nvcc("-c", "-Xcompiler", "-fPIC", *code("90"), older, "-o", "older.o")
    b.nvcc(*LINKED, "both.o", "older.o", "-o", b.out / "partial.so")


def build_relocatable(b: Builder) -> None:
    """Compiled for both archs, linked for the older alone: the newer lies there and is never loaded."""
    unit = b.source("unit.cu", INCREMENT)
    b.nvcc("-dc", "-Xcompiler", "-fPIC", *code("90", "120"), unit, "-o", "unit.o")
    b.nvcc("-dlink", "-Xcompiler", "-fPIC", *code("90"), "unit.o", "-o", "linked.o")
    b.run("g++", "-shared", "-s", "unit.o", "linked.o", "-o", b.out / "relocatable.so")


def build_elsewhere(b: Builder) -> None:
    """As in cuFFT and CUPTI: containers among other data, and a cubin as it is."""
    unit = b.source("unit.cu", INCREMENT)
    for arch in ("75", "120"):
        b.nvcc("-fatbin", *code(arch), unit, "-o", f"{arch}.fatbin")
    b.bare("elsewhere.so", DATA % (".nv_fatbin", "75.fatbin") + DATA % (".lrodata", "120.fatbin"))
    b.bare("hidden.so", DATA % (".nv_fatbin", "75.fatbin") + DATA % (".data.other", "120.fatbin"))
    cubin = b.out / "sm_120a.cubin"
    b.nvcc("-cubin", "-arch=sm_120a", unit, "-o", cubin)
    b.bare("loose.so", DATA % (".nv_fatbin", "75.fatbin") + DATA % (".data.other", cubin))


def build_torch(b: Builder) -> None:
    """A library that stands for c10, one that fits it, and one that was built for another version of it."""
    b.bare("libc10.so", C10, "-Wl,-soname,libc10.so", "-Wl,--hash-style=gnu")
    stub = b.scratch / "libcudart.so.12"
    b.run(
        *BARE,
        b.source("cudart.cpp", 'extern "C" int cudaFree0() { return 0; }\n'),
        "-o",
        stub,
        "-Wl,-soname,libcudart.so.12",
    )
    b.bare("fits.so", FITS, "-Wl,--no-as-needed", str(b.out / "libc10.so"))
    b.bare("other_torch.so", OTHER, "-Wl,--no-as-needed", str(b.out / "libc10.so"), str(stub))


def listed(path: Path) -> dict[str, int] | None:
    """Images by kind and arch as cuobjdump lists them; None where it finds none."""
    counts: dict[str, int] = {}
    for option, kind in (("--list-elf", "sass"), ("--list-ptx", "ptx")):
        done = subprocess.run(
            [str(TOOLKIT / "bin" / "cuobjdump"), option, str(path)], capture_output=True, text=True, check=False
        )
        for arch in re.findall(r"sm_(\d+[af]?)\.(?:cubin|ptx)$", done.stdout, re.MULTILINE):
            counts[f"{kind} {arch}"] = counts.get(f"{kind} {arch}", 0) + 1
    return dict(sorted(counts.items())) or None


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    out = out.parent if out.is_file() else out
    with tempfile.TemporaryDirectory() as scratch:
        build(Builder(out, Path(scratch)))
    found = {path.name: listed(path) for path in sorted(out.glob("*.so"))}
    (out / "cuobjdump.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
