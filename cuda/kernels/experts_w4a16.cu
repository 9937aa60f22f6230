// The routed experts of one layer for a handful of tokens: int4 weights in groups of 32 with a
// bf16 scale, bf16 activations, f32 sums. Tensor path: mma.sync with the weights as its m16 side
// ("swap AB"), since an expert rarely has more than 8 tokens.
//
// A tile is 16 weight rows; 256 of its columns are a unit, 2304 bytes that lie together in the
// order in which a warp's lanes use them. Each warp streams units of its own through a ring in
// shared memory. The order of columns inside a group is such that a lane's eight are consecutive:
// activations need no packing. Tokens are sorted by expert; a slot is one (token, expert) pair.
#include "device.cuh"

namespace {

constexpr int TILE_ROWS = 16;
constexpr int UNIT_COLUMNS = 256;
constexpr int GROUP = 32;
constexpr int GROUPS = UNIT_COLUMNS / GROUP;
constexpr int VECTORS = UNIT_COLUMNS / 64;  // 16-byte vectors of weights a lane has in a unit
constexpr int TOKENS = 8;                   // the n8 side
constexpr int WARPS = 4;
constexpr int STAGES = 4;
constexpr int DOWN_TILES = 4;  // tiles one after another in a warp

using Sum = float[4];

struct Unit {
  uint4 weights[VECTORS][WARP_LANES];
  __nv_bfloat162 scales[GROUPS][TILE_ROWS / 2];  // of rows r and r + 8
};

// The slots of one expert, and the activations they read.
struct Slots {
  const uint4* activations;
  const int* row_of_slot;
  int row_vectors;

  __device__ const uint4* row(int slot, int end) const {
    return slot < end ? activations + static_cast<size_t>(row_of_slot[slot]) * row_vectors
                      : nullptr;
  }
};

// Two 4-bit weights (bits `shift` and 16 + shift) as bf16: the bits of 128 + q, then minus 136.
__device__ __forceinline__ uint32_t dequantise(uint32_t word, int shift) {
  union {
    uint32_t word;
    __nv_bfloat162 pair;
  } biased, bias;
  biased.word = ((word >> shift) & 0x000f000fu) | 0x43004300u;
  bias.word = 0x43084308u;
  biased.pair = __hsub2(biased.pair, bias.pair);
  return biased.word;
}

__device__ __forceinline__ void fetch_unit(Unit& to, const Unit& from, int lane) {
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) copy_async<16>(&to.weights[v][lane], &from.weights[v][lane]);
  copy_async<8>(reinterpret_cast<uint2*>(to.scales) + lane,
                reinterpret_cast<const uint2*>(from.scales) + lane);
}

// Eight consecutive columns of every group; a lane with no token brings zeros.
__device__ __forceinline__ void load_activations(uint4 (&to)[GROUPS], const uint4* row, int unit,
                                                 int lane) {
#pragma unroll
  for (int group = 0; group < GROUPS; ++group)
    to[group] = row ? row[(unit * GROUPS + group) * 4 + lane % 4] : uint4{0, 0, 0, 0};
}

// One mma step: columns 4 step ... 4 step + 3 of the lane's eight.
__device__ __forceinline__ void multiply_step(Sum& sum, uint32_t weights, uint32_t low,
                                              uint32_t high) {
  const uint32_t a[4] = {dequantise(weights, 0), dequantise(weights, 4), dequantise(weights, 8),
                         dequantise(weights, 12)};
  const uint32_t b[2] = {low, high};
  mma_bf16(sum, a, b);
}

__device__ __forceinline__ void multiply_unit(Sum& sum, const Unit& unit, const uint4 (&x)[GROUPS],
                                              int lane) {
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    const uint4 vector = unit.weights[group / 2][lane];
    Sum part = {0.f, 0.f, 0.f, 0.f};
    multiply_step(part, group % 2 ? vector.z : vector.x, x[group].x, x[group].y);
    multiply_step(part, group % 2 ? vector.w : vector.y, x[group].z, x[group].w);
    const float2 scale = __bfloat1622float2(unit.scales[group][lane / 4]);
    sum[0] += part[0] * scale.x;
    sum[1] += part[1] * scale.x;
    sum[2] += part[2] * scale.y;
    sum[3] += part[3] * scale.y;
  }
}

// Streams `count` units from `from`, a warp's share; `first` is the number of the first one in its
// tile. After each tile, or at the end, `finish` gets the sums and how many came before.
template <class Finish>
__device__ __forceinline__ void stream_units(Unit* ring, const Unit* from, int count, int first,
                                             int tile_units, const uint4* row, int lane,
                                             Finish finish) {
  __syncwarp();  // the ring's last user has read it
#pragma unroll
  for (int u = 0; u < STAGES - 1; ++u) {
    if (u < count) fetch_unit(ring[u], from[u], lane);
    commit_async();
  }
  Sum sum = {0.f, 0.f, 0.f, 0.f};
  for (int u = 0; u < count; ++u) {
    uint4 x[GROUPS];
    load_activations(x, row, (first + u) % tile_units, lane);
    wait_async<STAGES - 2>();
    __syncwarp();  // scales came through other lanes, and the oldest unit has been read
    const int next = u + STAGES - 1;
    if (next < count) fetch_unit(ring[next % STAGES], from[next], lane);
    commit_async();
    multiply_unit(sum, ring[u % STAGES], x, lane);
    const bool tile_ends = (first + u + 1) % tile_units == 0;
    if (!tile_ends && u + 1 < count) continue;
    finish(sum, u / tile_units);
    sum[0] = sum[1] = sum[2] = sum[3] = 0.f;
  }
}

// Adds up the warps' sums in warp 0.
__device__ __forceinline__ void reduce_warps(Sum& sum, Sum (*shared)[WARP_LANES], int warp,
                                             int lane) {
  __syncthreads();  // the last sums have been read
#pragma unroll
  for (int i = 0; i < 4; ++i) shared[warp][lane][i] = sum[i];
  __syncthreads();
  for (int w = 1; w < WARPS && warp == 0; ++w)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += shared[w][lane][i];
}

__device__ __forceinline__ float silu(float x) { return x / (1.f + __expf(-x)); }

}  // namespace

// out[slot][i] = silu(gate row i . x) * (up row i . x). A tile has 8 gate rows and their 8 up rows;
// a block does one tile and its warps split the columns.
extern "C" __global__ void __launch_bounds__(WARPS* WARP_LANES)
    experts_gate_up(const void* __restrict__ weights,       // [experts][tiles][units] of Unit
                    const __nv_bfloat16* __restrict__ x,    // [tokens][columns]
                    const int* __restrict__ active,         // [1]: experts that have tokens
                    const int* __restrict__ expert,         // [active]
                    const int* __restrict__ offset,         // [active + 1]: the first slot of each
                    const int* __restrict__ token_of_slot,  // [slots]
                    int columns,
                    __nv_bfloat16* __restrict__ out) {  // [slots][8 tiles]
  __shared__ Unit ring[WARPS][STAGES];
  __shared__ Sum sums[WARPS][WARP_LANES];
  if (static_cast<int>(blockIdx.y) >= *active) return;
  const int warp = threadIdx.x / WARP_LANES, lane = threadIdx.x % WARP_LANES, tiles = gridDim.x,
            tile = blockIdx.x;
  const int tile_units = columns / UNIT_COLUMNS, share = tile_units / WARPS;
  const Unit* from = static_cast<const Unit*>(weights) +
                     (static_cast<size_t>(expert[blockIdx.y]) * tiles + tile) * tile_units +
                     warp * share;
  const Slots slots = {reinterpret_cast<const uint4*>(x), token_of_slot, columns / 8};
  const int end = offset[blockIdx.y + 1];
  for (int base = offset[blockIdx.y]; base < end; base += TOKENS) {
    const uint4* row = slots.row(base + lane / 4, end);
    stream_units(ring[warp], from, share, warp * share, tile_units, row, lane, [&](Sum& sum, int) {
      reduce_warps(sum, sums, warp, lane);
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        const int slot = base + lane % 4 * 2 + column;
        if (warp == 0 && slot < end)
          out[(static_cast<size_t>(slot) * tiles + tile) * 8 + lane / 4] =
              __float2bfloat16(silu(sum[column]) * sum[2 + column]);
      }
    });
  }
}
HOST_ENTRY(experts_gate_up)

// out[slot][i] = weight of the slot * (down row i . x of the slot). A warp does DOWN_TILES tiles.
extern "C" __global__ void __launch_bounds__(WARPS* WARP_LANES)
    experts_down(const void* __restrict__ weights,     // [experts][tiles][units] of Unit
                 const __nv_bfloat16* __restrict__ x,  // [slots][columns]
                 const int* __restrict__ active, const int* __restrict__ expert,
                 const int* __restrict__ offset,
                 const int* __restrict__ own_slot,       // [slots]: 0, 1, 2, ...
                 const float* __restrict__ slot_weight,  // [slots]
                 int columns,
                 __nv_bfloat16* __restrict__ out) {  // [slots][16 tiles]
  __shared__ Unit ring[WARPS][STAGES];
  if (static_cast<int>(blockIdx.y) >= *active) return;
  const int warp = threadIdx.x / WARP_LANES, lane = threadIdx.x % WARP_LANES;
  const int tiles = gridDim.x * WARPS * DOWN_TILES,
            first_tile = (blockIdx.x * WARPS + warp) * DOWN_TILES;
  const int tile_units = columns / UNIT_COLUMNS;
  const Unit* from = static_cast<const Unit*>(weights) +
                     (static_cast<size_t>(expert[blockIdx.y]) * tiles + first_tile) * tile_units;
  const Slots slots = {reinterpret_cast<const uint4*>(x), own_slot, columns / 8};
  const int end = offset[blockIdx.y + 1];
  for (int base = offset[blockIdx.y]; base < end; base += TOKENS) {
    const uint4* row = slots.row(base + lane / 4, end);
    stream_units(ring[warp], from, DOWN_TILES * tile_units, 0, tile_units, row, lane,
                 [&](Sum& sum, int done) {
#pragma unroll
                   for (int i = 0; i < 4; ++i) {
                     const int slot = base + lane % 4 * 2 + i % 2;
                     const size_t to =
                         (static_cast<size_t>(slot) * tiles + first_tile + done) * TILE_ROWS +
                         lane / 4 + i / 2 * 8;
                     if (slot < end) out[to] = __float2bfloat16(sum[i] * slot_weight[slot]);
                   }
                 });
  }
}
HOST_ENTRY(experts_down)

// out[token] = the sum of its slots, in the order of slot_of.
extern "C" __global__ void __launch_bounds__(128)
    experts_combine(const uint4* __restrict__ down,   // [slots][hidden] bf16
                    const int* __restrict__ slot_of,  // [tokens][top_k]
                    int hidden_vectors, int top_k,
                    uint4* __restrict__ out) {  // [tokens][hidden] bf16
  const int vector = blockIdx.x * blockDim.x + threadIdx.x, token = blockIdx.y;
  if (vector >= hidden_vectors) return;
  Eight sum = {};
  for (int k = 0; k < top_k; ++k) {
    const Eight part = unpack_bf16(
        down[static_cast<size_t>(slot_of[token * top_k + k]) * hidden_vectors + vector]);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum.value[i] += part.value[i];
  }
  out[static_cast<size_t>(token) * hidden_vectors + vector] = pack_bf16(sum);
}
HOST_ENTRY(experts_combine)
