// One product of a 16 x 16 and a 16 x 8 matrix, by every way of loading fragments.
#include "device.cuh"

namespace {

__device__ void store(float* out, const float (&sum)[4], int lane) {
  for (int i = 0; i < 4; ++i) out[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

}  // namespace

extern "C" __global__ void multiply(const uint16_t* a, const uint16_t* b,
                                    const uint16_t* b_transposed, float* out) {
  DYNAMIC_SHARED(uint16_t, shared);
  uint16_t *sa = shared, *sb = sa + 256, *st = sb + 128, lane = threadIdx.x;
  for (int i = lane; i < 256; i += 32) sa[i] = a[i];
  for (int i = lane; i < 128; i += 32) sb[i] = b[i], st[i] = b_transposed[i];
  __syncwarp();
  uint32_t fa[4], plain[4], transposed[4];
  load_matrices(fa, sa + lane % 16 * 16 + lane / 16 * 8);
  load_matrices(plain, st + lane % 8 * 16 + lane / 8 % 2 * 8);
  load_matrices_transposed(transposed, sb + lane % 16 * 8);
  float first[4] = {}, second[4] = {};
  mma_bf16(first, fa, {plain[0], plain[1]});
  mma_bf16(second, fa, {transposed[0], transposed[1]});
  store(out, first, lane);
  store(out + 128, second, lane);
}
HOST_ENTRY(multiply)

extern "C" __global__ void multiply_registers(const uint32_t* a, const uint16_t* b, float* out) {
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  const uint32_t fa[4] = {a[lane * 4], a[lane * 4 + 1], a[lane * 4 + 2], a[lane * 4 + 3]};
  const auto pair = [&](int k) {
    return b[k * 8 + g] | static_cast<uint32_t>(b[(k + 1) * 8 + g]) << 16;
  };
  float sum[4] = {};
  mma_bf16(sum, fa, {pair(2 * t), pair(2 * t + 8)});
  store(out, sum, lane);
}
HOST_ENTRY(multiply_registers)
