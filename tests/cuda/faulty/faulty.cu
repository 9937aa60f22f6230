// Kernels that are wrong, each in one way that the host shim must notice.
#include "device.cuh"

extern "C" __global__ void wait_for_nobody(int*) {
  if (threadIdx.x == 0)
    __syncwarp(0x3u);
  else
    __syncthreads();
}
HOST_ENTRY(wait_for_nobody)

extern "C" __global__ void leave_yourself_out(int*) { __syncwarp(0xfffffffeu); }
HOST_ENTRY(leave_yourself_out)

extern "C" __global__ void meet_elsewhere(int* out) {
  if (threadIdx.x % 2)
    __syncwarp();
  else
    out[threadIdx.x] = __shfl_xor_sync(ALL_LANES, 1, 1);
}
HOST_ENTRY(meet_elsewhere)

// Reads what its neighbour wrote, with no barrier between.
extern "C" __global__ void race_with_a_neighbour(int* out) {
  __shared__ int value[64];
  value[threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = value[threadIdx.x ^ 32];
}
HOST_ENTRY(race_with_a_neighbour)

// Reads an asynchronous copy before it has been waited for.
extern "C" __global__ void read_too_early(const int* in, int* out) {
  DYNAMIC_SHARED(int, held);
  copy_async<16>(held + 4 * threadIdx.x, in + 4 * threadIdx.x);
  commit_async();
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = held[4 * threadIdx.x + i];
  wait_async<0>();
}
HOST_ENTRY(read_too_early)

// Overwrites by an asynchronous copy what it still reads.
extern "C" __global__ void copy_too_early(const int* in, int* out) {
  DYNAMIC_SHARED(int, held);
  for (int i = 0; i < 4; ++i) held[4 * threadIdx.x + i] = in[4 * threadIdx.x + i];
  copy_async<16>(held + 4 * threadIdx.x, in + 4 * threadIdx.x + 4);
  commit_async();
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = held[4 * threadIdx.x + i];
  wait_async<0>();
}
HOST_ENTRY(copy_too_early)

extern "C" __global__ void write_past_the_end(int* out) { out[blockDim.x] = 1; }
HOST_ENTRY(write_past_the_end)

extern "C" __global__ void use_too_much_shared(int* out) {
  DYNAMIC_SHARED(int, held);
  held[threadIdx.x] = 1;
  out[threadIdx.x] = held[threadIdx.x + 1];
}
HOST_ENTRY(use_too_much_shared)
