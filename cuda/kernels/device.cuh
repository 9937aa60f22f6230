// What every kernel file shares: inline PTX behind small functions, each with a twin for the host
// in ../host/host_twins.h. Matrix products use mma.sync.m16n8k16 (bf16, f32 sums), the one
// tensor-core instruction that sm_90, sm_100, sm_103 and sm_120 all have.
#pragma once

#ifndef HOST_SHIM
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#define HOST_ENTRY(kernel)
#define DYNAMIC_SHARED(Type, name)                              \
  extern __shared__ __align__(16) unsigned char name##_bytes[]; \
  Type* name = reinterpret_cast<Type*>(name##_bytes)

// Lane 4g + t holds rows g and g + 8 of A (m16 k16), column g of B (k16 n8) and, of the sum,
// columns 2t and 2t + 1 of rows g (sum[0], sum[1]) and g + 8 (sum[2], sum[3]).
__device__ __forceinline__ void mma_bf16(float (&sum)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};\n"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Four 8x8 matrices of 16-bit values from shared memory; lane 8i + r points at row r of matrix i.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// Copies BYTES (8 or 16) from global to shared memory behind the thread's back, or writes zeros
// where the source is not valid; its address must still be one.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool valid = true) {
  const int bytes = valid ? BYTES : 0;
  if constexpr (BYTES == 16)  // past L1: what is streamed is read once
    asm volatile(
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)),
        "l"(from), "r"(bytes)
        : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared_address(to)),
                 "l"(from), "n"(BYTES), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void commit_async() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Until at most GROUPS_LEFT of this thread's newest groups are still under way.
template <int GROUPS_LEFT>
__device__ __forceinline__ void wait_async() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(GROUPS_LEFT) : "memory");
}

__device__ __forceinline__ void store_release(unsigned* flag, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;\n" ::"l"(flag), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned load_acquire(const unsigned* flag) {
  unsigned value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];\n" : "=r"(value) : "l"(flag) : "memory");
  return value;
}

// Of the SM that runs this; on the host the block's own number, as if each had an SM of its own.
__device__ __forceinline__ unsigned processor_number() {
  unsigned number;
  asm volatile("mov.u32 %0, %%smid;\n" : "=r"(number));
  return number;
}
__device__ __forceinline__ uint64_t stamp_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;\n" : "=l"(ns));
  return ns;
}
__device__ __forceinline__ uint64_t stamp_cycles() { return clock64(); }
__device__ __forceinline__ uint64_t spin_ns() { return stamp_ns(); }
__device__ __forceinline__ void pause_spin() { __nanosleep(20); }
#endif

constexpr int WARP_LANES = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

template <class T>
__device__ __forceinline__ T warp_max(T value, int lanes = WARP_LANES) {
  for (int bits = lanes / 2; bits; bits /= 2)
    value = max(value, __shfl_xor_sync(ALL_LANES, value, bits));
  return value;
}

__device__ __forceinline__ float warp_sum(float value, int lanes = WARP_LANES) {
  for (int bits = lanes / 2; bits; bits /= 2) value += __shfl_xor_sync(ALL_LANES, value, bits);
  return value;
}

// Eight bf16 values in one 16-byte vector.
struct Eight {
  float value[8];
};

__device__ __forceinline__ Eight unpack_bf16(const uint4& packed) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
  Eight eight;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    eight.value[i] = __uint_as_float(i % 2 ? words[i / 2] & 0xffff0000u : words[i / 2] << 16);
  return eight;
}

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  union {
    __nv_bfloat162 pair;
    uint32_t word;
  } both;
  both.pair = __floats2bfloat162_rn(low, high);
  return both.word;
}

__device__ __forceinline__ uint4 pack_bf16(const Eight& eight) {
  const float* v = eight.value;
  return {pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]),
          pack_bf16(v[6], v[7])};
}
