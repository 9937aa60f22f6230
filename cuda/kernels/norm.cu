// Adds the residual and normalises: residual += x, out = residual / rms(residual) * weight.
// bf16 in memory, f32 inside; the sum is rounded to bf16 before its square is taken, as it is
// what the next layer reads. One block a token, one thread for every four vectors of eight values.
#include "device.cuh"

namespace {

constexpr int VECTORS = 4;  // of eight values, held by a thread
constexpr int MOST_THREADS = 1024;

__device__ float block_sum(float value) {
  __shared__ float of_warp[MOST_THREADS / WARP_LANES];
  const int lane = threadIdx.x % WARP_LANES, warps = blockDim.x / WARP_LANES;
  value = warp_sum(value);
  if (lane == 0) of_warp[threadIdx.x / WARP_LANES] = value;
  __syncthreads();
  return warp_sum(lane < warps ? of_warp[lane] : 0.f);
}

__device__ __forceinline__ uint4 add_vectors(const uint4& a, const uint4& b) {
  Eight sum = unpack_bf16(a);
  const Eight other = unpack_bf16(b);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum.value[i] += other.value[i];
  return pack_bf16(sum);
}

__device__ __forceinline__ float sum_squares(const uint4& packed) {
  const Eight eight = unpack_bf16(packed);
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += eight.value[i] * eight.value[i];
  return sum;
}

__device__ __forceinline__ uint4 scale_vector(const uint4& packed, float factor,
                                              const uint4& weight) {
  Eight out = unpack_bf16(packed);
  const Eight by = unpack_bf16(weight);
#pragma unroll
  for (int i = 0; i < 8; ++i) out.value[i] *= factor * by.value[i];
  return pack_bf16(out);
}

}  // namespace

// hidden = 32 x threads; the block is a multiple of 32 threads.
extern "C" __global__ void __launch_bounds__(MOST_THREADS)
    add_rms_norm(const uint4* __restrict__ x,       // [tokens][hidden] bf16
                 const uint4* __restrict__ weight,  // [hidden] bf16
                 float epsilon,
                 uint4* __restrict__ residual,  // [tokens][hidden] bf16, updated
                 uint4* __restrict__ out) {     // [tokens][hidden] bf16
  const int thread = threadIdx.x, threads = blockDim.x, row = blockIdx.x * threads * VECTORS;
  uint4 held[VECTORS];
  float squares = 0.f;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int i = row + v * threads + thread;
    residual[i] = held[v] = add_vectors(x[i], residual[i]);
    squares += sum_squares(held[v]);
  }
  const float factor = rsqrtf(block_sum(squares) / (threads * VECTORS * 8) + epsilon);
#pragma unroll
  for (int v = 0; v < VECTORS; ++v)
    out[row + v * threads + thread] = scale_vector(held[v], factor, weight[v * threads + thread]);
}
HOST_ENTRY(add_rms_norm)
