"""Signed bytes in kernels: sums of products, orders of bytes, fragments of matrix units, against
NumPy; the instructions that compilers make of them."""

import os
import subprocess

import numpy as np
import pytest
from host_units import host_library, needs_host, pointer

from dscore.building.compilers import find_compiler, missing_compiler
from dscore.building.headers import sources

# Products of tiles in LDS: a[rows][sum] along the sum by b, along it too or across.
UNIT = """
#include "support/byte_fragments.hpp"
using namespace dscore;
constexpr int sum = 64, pitch = 80, pixels = 64;
template <bool Along, int Wavefront>
__device__ void multiply(const int8_t *a, const int8_t *b, int *d) {
  const int lane = threadIdx.x;
  int8_t *lds = block_lds<int8_t, 16 * pitch + pixels * pitch>(), *of_b = lds + 16 * pitch;
  for (int at = lane; at < 16 * sum; at += Wavefront) lds[at / sum * pitch + at % sum] = a[at];
  for (int at = lane; at < pixels * sum; at += Wavefront) {
    const int row = Along ? at / sum : at / pixels, column = Along ? at % sum : at % pixels;
    of_b[row * pitch + column] = b[at];
  }
  __syncthreads();
  constexpr int columns = Wavefront == 32 ? 8 : 16, count = pixels / columns;
  int sums[count][4] = {};
  for (int k = 0; k < sum; k += 32) {
    const int8_t *from = of_b + (Along ? k : k * pitch);
    if constexpr (Wavefront == 32) {
      BytesA left;
      BytesB right[count];
      left.read(lds + k, pitch, lane);
      if constexpr (Along) read_along(right, from, pitch, lane);
      else read_across(right, from, pitch, lane);
      for (int n = 0; n < count; n++) multiply_32(sums[n], left, right[n]);
    } else {
      Eighths left[1], right[count];
      read_along(left, lds + k, pitch, lane);
      if constexpr (Along) read_along(right, from, pitch, lane);
      else read_across(right, from, pitch, lane);
      for (int n = 0; n < count; n++) multiply_eighths(sums[n], left[0], right[n]);
    }
  }
  for (int n = 0; n < count; n++)
    for (int i = 0; i < 4; i++) {
      const int row = Wavefront == 32 ? lane / 4 + i / 2 * 8 : lane / 16 * 4 + i;
      const int place = Wavefront == 32 ? lane % 4 * 2 + i % 2 : lane % 16;
      constexpr int group = Along ? 1 : Wavefront == 32 ? 2 : 4;
      const int column = n / group * group * columns + place * group + n % group;
      d[row * pixels + column] = sums[n][i];
    }
}
"""
HOST = UNIT + """
extern "C" int product(bool along, int wavefront, const int8_t *a, const int8_t *b, int *d) {
  const auto lane = [&] {
    if (wavefront == 32) along ? multiply<true, 32>(a, b, d) : multiply<false, 32>(a, b, d);
    else along ? multiply<true, 64>(a, b, d) : multiply<false, 64>(a, b, d);
  };
  using Lane = decltype(lane);
  return emulation::launch(1, wavefront, wavefront, 1,
      {[](const void *body) { (*static_cast<Lane *>(body))(); }, &lane});
}
extern "C" void words(const uint32_t *a, const uint32_t *b, int *sums, uint32_t *turned, int n) {
  for (int i = 0; i < n; i++) {
    sums[i] = add_bytes(b[i], dot4(a[i], b[i], static_cast<int>(a[i])));
    Word rows[4] = {a[i], b[i], ~a[i], ~b[i]};
    transpose_bytes(rows);
    for (int row = 0; row < 4; row++) turned[4 * i + row] = rows[row];
    turned[4 * n + i] = packed_bytes(byte_of(a[i], 3), byte_of(a[i], 2), byte_of(b[i], 1),
                                     byte_of(b[i], 0));
  }
}
"""
DEVICE = UNIT + """
__global__ void unit(const int8_t *a, const int8_t *b, int *d, const uint32_t *words) {
#if defined(__CUDACC__)
  multiply<true, 32>(a, b, d);
  multiply<false, 32>(a, b, d + 64);
#elif defined(DSCORE_MFMA)
  multiply<true, 64>(a, b, d);
  multiply<false, 64>(a, b, d + 64);
#endif
  Word rows[4] = {words[0], words[1], words[2], words[3]};
  transpose_bytes(rows);
  d[128] = dot4(rows[0], rows[1], static_cast<int>(packed_bytes(d[1], d[2], d[3], d[4])));
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return host_library(tmp_path_factory.mktemp("integers"), HOST)


@needs_host
def test_words_of_bytes(library):
    random = np.random.default_rng(0)
    a, b = (np.concatenate([random.integers(0, 2**32, 500), [0, 2**32 - 1, 0x80808080, 0x7F80017F]]
                           ).astype(np.uint32) for _ in "ab")
    sums, turned = np.empty(a.size, np.int32), np.empty(5 * a.size, np.uint32)
    library.words(*map(pointer, (a, b, sums, turned)), a.size)
    bytes_a, bytes_b = (one.view(np.int8).reshape(-1, 4).astype(np.int64) for one in (a, b))
    wanted = (bytes_a * bytes_b).sum(1) + bytes_b.sum(1) + a.view(np.int32)
    assert np.array_equal(sums, wanted.astype(np.int32))
    rows = np.stack([a, b, ~a, ~b], 1).view(np.uint8).reshape(-1, 4, 4)
    assert np.array_equal(turned[:4 * a.size].view(np.uint8).reshape(-1, 4, 4),
                          rows.transpose(0, 2, 1))
    packed = np.stack([bytes_a[:, 3], bytes_a[:, 2], bytes_b[:, 1], bytes_b[:, 0]], 1)
    assert np.array_equal(turned[4 * a.size:].view(np.int8).reshape(-1, 4), packed)


@needs_host
@pytest.mark.parametrize("wavefront", [32, 64])
@pytest.mark.parametrize("along", [True, False])
def test_products_of_fragments(library, along, wavefront):
    random = np.random.default_rng(wavefront)
    a, b = (random.integers(-128, 128, (rows, 64)).astype(np.int8) for rows in (16, 64))
    a[0], b[:, 0] = -128, -128
    d = np.full((16, 64), 7, np.int32)
    assert library.product(along, wavefront, pointer(a), pointer(b), pointer(d)) == 0
    wide = b.T if along else b
    assert np.array_equal(d, a.astype(np.int32) @ wide.astype(np.int32))


def assembly(compiler, options, folder):
    missing = missing_compiler(compiler)
    if missing:
        pytest.skip(missing)
    (folder / "unit.cu").write_text(DEVICE)
    tool = find_compiler(compiler)
    if tool.needs_no_rocm:
        pytest.skip("hipcc is not installed")
    command = [tool.path, "-std=c++17", "-O3", f"-I{sources()}", *options, "unit.cu", "-o",
               "unit.s"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                          env={**os.environ, "HIP_PLATFORM": "amd"})
    assert done.returncode == 0, done.stderr
    return (folder / "unit.s").read_text()


def test_instructions_of_nvidia(tmp_path):
    text = assembly("nvcc", ["-arch=sm_90", "--ptx"], tmp_path)
    for instruction in ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "dp4a.s32.s32", "prmt",
                        "ldmatrix.sync.aligned.m8n8.x4.trans"):
        assert instruction in text, instruction


@pytest.mark.parametrize(("architecture", "instructions"), [
    ("gfx906", ["v_dot4_i32_i8", "v_perm_b32"]),
    ("gfx90a", ["v_dot4c_i32_i8", "v_mfma_i32_16x16x16i8"])])
@pytest.mark.deep
def test_instructions_of_amd(tmp_path, architecture, instructions):
    text = assembly("hip", [f"--offload-arch={architecture}", "-S", "--cuda-device-only", "-x",
                            "hip"], tmp_path)
    for instruction in instructions:
        assert instruction in text, instruction
