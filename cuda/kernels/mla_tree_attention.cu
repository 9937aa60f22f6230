// Attention of a verify pass over the latent cache (MLA with absorbed projections): all heads of
// all tree tokens share one row of 512 latent + 64 rope values per key, which is key and, but for
// the rope part, value at once. Every token sees the committed context; of the tree's own keys,
// the last ones, it sees itself and its ancestors, by a bit mask. Tensor path: mma.sync, bf16.
//
// A row is one (token, head) pair. A block takes 16 or 32 rows and one share of the keys, 32 keys
// at a time through a two-stage ring: 8 warps split scores by 4 parts of the row's width and 2
// halves of the keys, and the output by 64 columns each. A second kernel joins the shares.
// Everything fits into the 99 KB of shared memory that sm_120 has.
#include "device.cuh"

namespace {

constexpr int LATENT = 512, WIDTH = 576;
constexpr int KEYS = 32;  // of a tile
constexpr int STAGES = 2;
constexpr int WARPS = 8, THREADS = WARPS * WARP_LANES;
constexpr int RESIDENT = 2;  // blocks of 16 rows on an SM; of 32 rows registers allow one
constexpr int WIDTH_PARTS = 4;  // of the scores' sum
constexpr int STEPS = WIDTH / 16 / WIDTH_PARTS;
constexpr int COLUMN_TILES = LATENT / WARPS / 8;
// Padded so that the eight rows of a matrix lie in different banks.
constexpr int TILE_STRIDE = WIDTH + 8, WEIGHT_STRIDE = KEYS + 8, SCORE_STRIDE = KEYS + 4;

// How keys lie in memory, and in the ring before they are used.
struct CacheBf16 {
  using Value = __nv_bfloat16;
  static constexpr int STRIDE_BYTES = TILE_STRIDE * 2;
  static constexpr bool CONVERTS = false;
};
struct CacheFp8 {  // e4m3, one scale for all
  using Value = __nv_fp8_e4m3;
  static constexpr int STRIDE_BYTES = WIDTH + 16;
  static constexpr bool CONVERTS = true;
};

template <int ROW_TILES, class Cache>
struct Shared {
  static constexpr int ROWS = ROW_TILES * 16;
  unsigned char ring[STAGES][KEYS * Cache::STRIDE_BYTES];
  __nv_bfloat16 converted[Cache::CONVERTS ? KEYS * TILE_STRIDE : 8];
  float scores[WIDTH_PARTS][ROWS * SCORE_STRIDE];
  __nv_bfloat16 weights[ROWS * WEIGHT_STRIDE];
  float highest[ROWS], total[ROWS], rescale[ROWS];

  __device__ const __nv_bfloat16* tile(int stage) const {
    return Cache::CONVERTS ? converted : reinterpret_cast<const __nv_bfloat16*>(ring[stage]);
  }
};

struct Problem {
  const __nv_bfloat16* query;  // of this request
  const unsigned char* keys;
  const unsigned* sees;
  int tokens, heads, context, words, splits;
  float scale;

  __device__ int rows() const { return tokens * heads; }
  __device__ int key_count() const { return context + tokens; }
  __device__ bool visible(int row, int key) const {
    const int own = key - context;
    if (row >= rows() || key >= key_count()) return false;
    return own < 0 || (sees[row / heads * words + own / 32] >> own % 32 & 1u);
  }
};

struct KeyRange {
  int begin, end;
};

// Share number `split` of the keys, whole tiles.
__device__ KeyRange share_of_keys(const Problem& p, int split) {
  const int each = ((p.key_count() + p.splits - 1) / p.splits + KEYS - 1) / KEYS * KEYS;
  return {split * each, min(p.key_count(), (split + 1) * each)};
}

template <class Cache>
__device__ void fetch_tile(unsigned char* stage, const Problem& p, int first, int end) {
  constexpr int ROW_BYTES = WIDTH * sizeof(typename Cache::Value), VECTORS = ROW_BYTES / 16;
  for (int i = threadIdx.x; i < KEYS * VECTORS; i += THREADS) {
    const int key = i / VECTORS, byte = i % VECTORS * 16;
    const bool valid = first + key < end;
    copy_async<16>(stage + key * Cache::STRIDE_BYTES + byte,
                   p.keys + static_cast<size_t>(valid ? first + key : first) * ROW_BYTES + byte,
                   valid);
  }
}

__device__ __forceinline__ uint32_t convert_pair(uint16_t pair) {
  const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3);
  const float2 both = __half22float2(__half2(halves));
  return pack_bf16(both.x, both.y);
}

__device__ void convert_tile(__nv_bfloat16* to, const unsigned char* stage) {
  for (int i = threadIdx.x; i < KEYS * (WIDTH / 8); i += THREADS) {
    const int key = i / (WIDTH / 8), column = i % (WIDTH / 8) * 8;
    const uint2 eight =
        *reinterpret_cast<const uint2*>(stage + key * CacheFp8::STRIDE_BYTES + column);
    *reinterpret_cast<uint4*>(to + key * TILE_STRIDE + column) = {
        convert_pair(eight.x & 0xffffu), convert_pair(eight.x >> 16),
        convert_pair(eight.y & 0xffffu), convert_pair(eight.y >> 16)};
  }
}

__device__ __forceinline__ uint32_t load_pair(const Problem& p, int row, int column) {
  if (row >= p.rows()) return 0u;
  return *reinterpret_cast<const uint32_t*>(p.query + static_cast<size_t>(row) * WIDTH + column);
}

// The part of the queries that this warp multiplies, for the whole run: no shared memory needed.
template <int ROW_TILES>
struct Queries {
  uint32_t part[ROW_TILES][STEPS][4];

  __device__ void load(const Problem& p, int first_row, int width_part, int lane) {
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile)
#pragma unroll
      for (int step = 0; step < STEPS; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          part[tile][step][i] =
              load_pair(p, first_row + tile * 16 + lane / 4 + i % 2 * 8,
                        (width_part * STEPS + step) * 16 + lane % 4 * 2 + i / 2 * 8);
  }
};

// This warp's part of the scores: 16 keys, a quarter of the width.
template <int ROW_TILES>
__device__ __forceinline__ void multiply_keys(float* scores, const __nv_bfloat16* keys,
                                              const Queries<ROW_TILES>& queries, int width_part,
                                              int half, int lane) {
  float sum[ROW_TILES][2][4] = {};
  const __nv_bfloat16* at = keys + (half * 16 + lane / 16 * 8 + lane % 8) * TILE_STRIDE +
                            width_part * STEPS * 16 + lane / 8 % 2 * 8;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    uint32_t b[4];
    load_matrices(b, at + step * 16);
    const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile) {
      mma_bf16(sum[tile][0], queries.part[tile][step], low);
      mma_bf16(sum[tile][1], queries.part[tile][step], high);
    }
  }
#pragma unroll
  for (int tile = 0; tile < ROW_TILES; ++tile)
#pragma unroll
    for (int i = 0; i < 8; ++i)
      scores[(tile * 16 + lane / 4 + i / 2 % 2 * 8) * SCORE_STRIDE + half * 16 + i / 4 * 8 +
             lane % 4 * 2 + i % 2] = sum[tile][i / 4][i % 4];
}

// Online softmax: new weights of this tile, and what older sums must be multiplied with.
template <int ROW_TILES, class Cache>
__device__ __forceinline__ void weigh_keys(Shared<ROW_TILES, Cache>& shared, const Problem& p,
                                           int first_row, int first_key, int end) {
  constexpr int LANES = THREADS / (ROW_TILES * 16);  // of a row
  constexpr int EACH = KEYS / LANES;                 // keys of a lane
  const int row = threadIdx.x / LANES, part = threadIdx.x % LANES;
  float score[EACH], highest = -INFINITY, total = 0.f;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int key = part * EACH + i;
    float sum = 0.f;
#pragma unroll
    for (int w = 0; w < WIDTH_PARTS; ++w) sum += shared.scores[w][row * SCORE_STRIDE + key];
    const bool counts = first_key + key < end && p.visible(first_row + row, first_key + key);
    score[i] = counts ? sum * p.scale : -INFINITY;
    highest = fmaxf(highest, score[i]);
  }
  const float before = shared.highest[row];
  highest = fmaxf(before, warp_max(highest, LANES));
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const float weight = score[i] == -INFINITY ? 0.f : __expf(score[i] - highest);
    total += weight;
    shared.weights[row * WEIGHT_STRIDE + part * EACH + i] = __float2bfloat16(weight);
  }
  total = warp_sum(total, LANES);
  if (part != 0) return;
  const float rescale = before == -INFINITY ? 0.f : __expf(before - highest);
  shared.highest[row] = highest;
  shared.total[row] = shared.total[row] * rescale + total;
  shared.rescale[row] = rescale;
}

template <int ROW_TILES>
using Output = float[ROW_TILES][COLUMN_TILES][4];  // this warp's 64 columns

template <int ROW_TILES, class Cache>
__device__ __forceinline__ void rescale_output(Output<ROW_TILES>& out,
                                               const Shared<ROW_TILES, Cache>& shared, int lane) {
#pragma unroll
  for (int tile = 0; tile < ROW_TILES; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float rescale = shared.rescale[tile * 16 + lane / 4 + i / 2 * 8];
#pragma unroll
      for (int column = 0; column < COLUMN_TILES; ++column) out[tile][column][i] *= rescale;
    }
}

template <int ROW_TILES, class Cache>
__device__ __forceinline__ void add_values(Output<ROW_TILES>& out,
                                           const Shared<ROW_TILES, Cache>& shared, int stage,
                                           int warp, int lane) {
  const __nv_bfloat16* values =
      shared.tile(stage) + lane % 16 * TILE_STRIDE + warp * 64 + lane / 16 * 8;
#pragma unroll
  for (int keys = 0; keys < KEYS; keys += 16) {
    uint32_t weights[ROW_TILES][4];
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; ++tile)
      load_matrices(weights[tile], shared.weights + (tile * 16 + lane % 16) * WEIGHT_STRIDE + keys +
                                       lane / 16 * 8);
#pragma unroll
    for (int column = 0; column < COLUMN_TILES; column += 2) {
      uint32_t b[4];
      load_matrices_transposed(b, values + keys * TILE_STRIDE + column * 8);
      const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
#pragma unroll
      for (int tile = 0; tile < ROW_TILES; ++tile) {
        mma_bf16(out[tile][column], weights[tile], left);
        mma_bf16(out[tile][column + 1], weights[tile], right);
      }
    }
  }
}

template <int ROW_TILES, class Cache>
__device__ void write_share(const Output<ROW_TILES>& out, const Shared<ROW_TILES, Cache>& shared,
                            int rows, int first_row, float* sums, float2* highest_and_total,
                            int warp, int lane) {
#pragma unroll
  for (int tile = 0; tile < ROW_TILES; ++tile)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + tile * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int column = 0; column < COLUMN_TILES; ++column)
        if (row < rows)
          *reinterpret_cast<float2*>(sums + static_cast<size_t>(row) * LATENT + warp * 64 +
                                     column * 8 + lane % 4 * 2) = {out[tile][column][half * 2],
                                                                   out[tile][column][half * 2 + 1]};
    }
  const int row = threadIdx.x;
  if (row < ROW_TILES * 16 && first_row + row < rows)
    highest_and_total[first_row + row] = {shared.highest[row], shared.total[row]};
}

template <int ROW_TILES, class Cache>
__device__ __forceinline__ void attend(Shared<ROW_TILES, Cache>& shared, const Problem& p,
                                       int first_row, int split, float* sums,
                                       float2* highest_and_total) {
  const int warp = threadIdx.x / WARP_LANES, lane = threadIdx.x % WARP_LANES, width_part = warp / 2,
            half = warp % 2;
  const KeyRange keys = share_of_keys(p, split);
  Output<ROW_TILES> out = {};
  Queries<ROW_TILES> queries;
  queries.load(p, first_row, width_part, lane);
  if (threadIdx.x < ROW_TILES * 16) {
    shared.highest[threadIdx.x] = -INFINITY;
    shared.total[threadIdx.x] = 0.f;
  }
  if (keys.begin < keys.end) fetch_tile<Cache>(shared.ring[0], p, keys.begin, keys.end);
  commit_async();
  for (int key = keys.begin, stage = 0; key < keys.end; key += KEYS, stage ^= 1) {
    wait_async<0>();
    __syncthreads();  // this tile has arrived, and everyone is done with the one before
    if (key + KEYS < keys.end) fetch_tile<Cache>(shared.ring[stage ^ 1], p, key + KEYS, keys.end);
    commit_async();
    if constexpr (Cache::CONVERTS) {
      convert_tile(shared.converted, shared.ring[stage]);
      __syncthreads();
    }
    multiply_keys<ROW_TILES>(shared.scores[width_part], shared.tile(stage), queries, width_part,
                             half, lane);
    __syncthreads();
    weigh_keys(shared, p, first_row, key, keys.end);
    __syncthreads();
    rescale_output<ROW_TILES>(out, shared, lane);
    add_values<ROW_TILES>(out, shared, stage, warp, lane);
  }
  write_share<ROW_TILES>(out, shared, p.rows(), first_row, sums, highest_and_total, warp, lane);
}

// Grid: shares of the keys, row tiles, requests.
template <int ROW_TILES, class Cache>
__device__ __forceinline__ void attend_share(const __nv_bfloat16* query, const void* cache,
                                             const unsigned* sees, int tokens, int heads,
                                             int context, int words, float scale, float* sums,
                                             float2* highest_and_total) {
  DYNAMIC_SHARED(unsigned char, raw);
  auto& shared = *reinterpret_cast<Shared<ROW_TILES, Cache>*>(raw);
  const int request = blockIdx.z, split = blockIdx.x, splits = gridDim.x;
  const size_t key_bytes =
      static_cast<size_t>(context + tokens) * WIDTH * sizeof(typename Cache::Value);
  const size_t rows = static_cast<size_t>(tokens) * heads, share = request * splits + split;
  const Problem p = {query + request * rows * WIDTH,
                     static_cast<const unsigned char*>(cache) + request * key_bytes,
                     sees + static_cast<size_t>(request) * tokens * words,
                     tokens,
                     heads,
                     context,
                     words,
                     splits,
                     scale};
  attend(shared, p, blockIdx.y * ROW_TILES * 16, split, sums + share * rows * LATENT,
         highest_and_total + share * rows);
}

// Of a row's shares.
__device__ float find_highest(const float2* highest_and_total, int rows, int splits, int lane) {
  float highest = -INFINITY;
  for (int s = lane; s < splits; s += WARP_LANES)
    highest = fmaxf(highest, highest_and_total[static_cast<size_t>(s) * rows].x);
  return warp_max(highest);
}

// Four columns of a row.
struct Joined {
  float4 sum;
  float total;

  __device__ __forceinline__ void add(float weight, const float4& part, float part_total) {
    total += weight * part_total;
    sum.x += weight * part.x;
    sum.y += weight * part.y;
    sum.z += weight * part.z;
    sum.w += weight * part.w;
  }
};

// Share number `warp` and each eighth one after it, AHEAD of them under way at once: nothing
// branches. The weight is 0 where no key is visible, and of what lies beyond the last share.
__device__ __forceinline__ Joined add_shares(const float* __restrict__ sums,
                                             const float2* __restrict__ highest_and_total, int rows,
                                             int splits, int warp, float highest) {
  constexpr int AHEAD = 4;
  Joined joined = {};
  for (int first = warp; first < splits; first += WARPS * AHEAD) {
    float4 part[AHEAD];
    float2 of_share[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const size_t share = static_cast<size_t>(min(first + i * WARPS, splits - 1)) * rows;
      of_share[i] = highest_and_total[share];
      part[i] = *reinterpret_cast<const float4*>(sums + share * LATENT);
    }
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      const float weight = __expf(of_share[i].x - highest);
      joined.add(first + i * WARPS < splits ? weight : 0.f, part[i], of_share[i].y);
    }
  }
  return joined;
}

}  // namespace

// query [requests][tokens][heads][576] bf16, cache [requests][context + tokens][576],
// sees [requests][tokens][words]; scale holds the cache's scale too. Out: what a share of the keys
// adds up to, sums [requests][splits][tokens * heads][512], and with it the highest score and the
// total weight [requests][splits][tokens * heads][2].
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    mla_attend_bf16_rows16(const __nv_bfloat16* query, const void* cache, const unsigned* sees,
                           int tokens, int heads, int context, int words, float scale, float* sums,
                           float2* highest_and_total) {
  attend_share<1, CacheBf16>(query, cache, sees, tokens, heads, context, words, scale, sums,
                             highest_and_total);
}
HOST_ENTRY(mla_attend_bf16_rows16)

extern "C" __global__ void __launch_bounds__(THREADS)
    mla_attend_bf16_rows32(const __nv_bfloat16* query, const void* cache, const unsigned* sees,
                           int tokens, int heads, int context, int words, float scale, float* sums,
                           float2* highest_and_total) {
  attend_share<2, CacheBf16>(query, cache, sees, tokens, heads, context, words, scale, sums,
                             highest_and_total);
}
HOST_ENTRY(mla_attend_bf16_rows32)

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    mla_attend_fp8_rows16(const __nv_bfloat16* query, const void* cache, const unsigned* sees,
                          int tokens, int heads, int context, int words, float scale, float* sums,
                          float2* highest_and_total) {
  attend_share<1, CacheFp8>(query, cache, sees, tokens, heads, context, words, scale, sums,
                            highest_and_total);
}
HOST_ENTRY(mla_attend_fp8_rows16)

extern "C" __global__ void __launch_bounds__(THREADS)
    mla_attend_fp8_rows32(const __nv_bfloat16* query, const void* cache, const unsigned* sees,
                          int tokens, int heads, int context, int words, float scale, float* sums,
                          float2* highest_and_total) {
  attend_share<2, CacheFp8>(query, cache, sees, tokens, heads, context, words, scale, sums,
                            highest_and_total);
}
HOST_ENTRY(mla_attend_fp8_rows32)

// Grid: rows, fourths of the columns, requests. Each warp takes every eighth share.
extern "C" __global__ void __launch_bounds__(THREADS)
    mla_join(const float* __restrict__ sums, const float2* __restrict__ highest_and_total, int rows,
             int splits,
             float value_scale,                  // of the cache: 1 for bf16
             __nv_bfloat16* __restrict__ out) {  // [requests][rows][512]
  __shared__ float4 sum_of_warp[WARPS][WARP_LANES];
  __shared__ float total_of_warp[WARPS];
  const int warp = threadIdx.x / WARP_LANES, lane = threadIdx.x % WARP_LANES;
  const int row = blockIdx.x, column = (blockIdx.y * WARP_LANES + lane) * 4, request = blockIdx.z;
  const size_t first = static_cast<size_t>(request) * splits * rows + row;
  highest_and_total += first;
  const float highest = find_highest(highest_and_total, rows, splits, lane);
  const Joined own =
      add_shares(sums + first * LATENT + column, highest_and_total, rows, splits, warp, highest);
  sum_of_warp[warp][lane] = own.sum;
  total_of_warp[warp] = own.total;
  __syncthreads();
  if (warp != 0) return;
  Joined all = own;
  for (int w = 1; w < WARPS; ++w) all.add(1.f, sum_of_warp[w][lane], total_of_warp[w]);
  const float factor = value_scale / all.total;
  *reinterpret_cast<uint2*>(out + (static_cast<size_t>(request) * rows + row) * LATENT + column) = {
      pack_bf16(all.sum.x * factor, all.sum.y * factor),
      pack_bf16(all.sum.z * factor, all.sum.w * factor)};
}
HOST_ENTRY(mla_join)
