// Builds the DDTree of each request: the `budget` most probable prefixes, found best first.
// Source: Ringel and Romano, arXiv 2604.12989, Algorithm 1; the same nodes, order and ties as the
// simulator's own builder: products in double precision, of equals the one pushed first.
//
// One warp a request. Popping a slot of the frontier puts the next sibling back into it and
// appends the first child, so that the frontier has at most one slot more than there are nodes:
// no heap is needed, a warp-wide maximum finds the next node.
#include "device.cuh"

namespace {

constexpr int MOST_NODES = 256;  // the root among them
constexpr int MOST_WORDS = MOST_NODES / 32;
constexpr int MOST_CHOICES = 1024;  // positions x ranks

// A positive double orders like its bits; an empty slot has none. The order of pushes is unique.
struct Candidate {
  unsigned long long probability;
  unsigned earliness_and_slot;
};

__device__ __forceinline__ bool precedes(const Candidate& a, const Candidate& b) {
  if (a.probability != b.probability) return a.probability > b.probability;
  return a.earliness_and_slot > b.earliness_and_slot;
}

__device__ __forceinline__ Candidate candidate(double probability, int push, int slot) {
  return {static_cast<unsigned long long>(__double_as_longlong(probability)),
          static_cast<unsigned>(0xffff - push) << 16 | static_cast<unsigned>(slot)};
}

struct Frontier {
  Candidate slot[MOST_NODES];
  short parent[MOST_NODES], rank[MOST_NODES];
};

struct Tree {
  double probability[MOST_NODES];
  short depth[MOST_NODES];  // tokens from the root
  unsigned sees[MOST_NODES * MOST_WORDS];
};

__device__ Candidate find_best(const Frontier& frontier, int slots, int lane) {
  Candidate best = {0, 0};
  for (int s = lane; s < slots; s += WARP_LANES)
    if (precedes(frontier.slot[s], best)) best = frontier.slot[s];
  for (int bits = WARP_LANES / 2; bits; bits /= 2) {
    const Candidate other = {__shfl_xor_sync(ALL_LANES, best.probability, bits),
                             __shfl_xor_sync(ALL_LANES, best.earliness_and_slot, bits)};
    if (precedes(other, best)) best = other;
  }
  return best;
}

__device__ __forceinline__ void push(Frontier& frontier, int slot, int rank, double probability,
                                     int push) {
  frontier.rank[slot] = static_cast<short>(rank);
  frontier.slot[slot] = candidate(probability, push, slot);
}

// The next sibling goes into the popped slot, whose parent stays, and counts as pushed before the
// first child.
__device__ void push_followers(Frontier& frontier, const Tree& tree, const float* marginal,
                               int positions, int ranks, int popped, int node, int slots) {
  const int parent = frontier.parent[popped], rank = frontier.rank[popped] + 1,
            depth = tree.depth[node];
  const double sibling =
      rank < ranks ? tree.probability[parent] * marginal[(depth - 1) * ranks + rank] : 0.0;
  const double child = depth < positions ? tree.probability[node] * marginal[depth * ranks] : 0.0;
  push(frontier, popped, rank, sibling, 2 * node - 1);
  frontier.parent[slots] = static_cast<short>(node);
  push(frontier, slots, 0, child, 2 * node);
}

__device__ __forceinline__ void inherit_sight(Tree& tree, int node, int parent, int words,
                                              int lane) {
  if (lane >= words) return;
  const unsigned own = lane == node / 32 ? 1u << node % 32 : 0u;
  tree.sees[node * words + lane] = (node == parent ? 0u : tree.sees[parent * words + lane]) | own;
}

struct Output {
  int *parent, *depth, *token;
  double* probability;
  unsigned* sees;

  __device__ void write(int node, int its_parent, int its_depth, int its_token,
                        double its_probability) const {
    parent[node] = its_parent;
    depth[node] = its_depth;
    token[node] = its_token;
    probability[node] = its_probability;
  }
};

__device__ void clear_rest(const Output& out, int nodes, int size, int words, int lane) {
  for (int i = nodes + lane; i < size; i += WARP_LANES) out.write(i, -1, -1, -1, 0.0);
  for (int i = nodes * words + lane; i < size * words; i += WARP_LANES) out.sees[i] = 0u;
}

}  // namespace

// Rows have budget + 1 nodes, the root first; missing ones have parent, depth and token -1.
extern "C" __global__ void __launch_bounds__(WARP_LANES) build_tree(
    const float* __restrict__ marginals,  // [requests][positions][ranks], falling along ranks
    const int* __restrict__ tokens,       // [requests][positions][ranks]
    const int* __restrict__ root_token,   // [requests]
    int positions, int ranks, int budget,
    int* __restrict__ parent,  // [requests][budget + 1]
    int* __restrict__ depth,   // 0 for the root
    int* __restrict__ token, double* __restrict__ probability,
    unsigned* __restrict__ sees,  // [requests][budget + 1][words]: itself, its ancestors, the root
    int* __restrict__ nodes) {    // [requests], the root among them
  __shared__ float marginal[MOST_CHOICES];
  __shared__ Frontier frontier;
  __shared__ Tree tree;
  const int lane = threadIdx.x, request = blockIdx.x, size = budget + 1, words = (size + 31) / 32;
  const Output out = {parent + request * size, depth + request * size, token + request * size,
                      probability + request * size, sees + request * size * words};
  tokens += request * positions * ranks;
  for (int i = lane; i < positions * ranks; i += WARP_LANES)
    marginal[i] = marginals[request * positions * ranks + i];
  __syncwarp();
  if (lane == 0) {
    tree.probability[0] = 1.0;
    tree.depth[0] = 0;
    out.write(0, -1, 0, root_token[request], 1.0);
    frontier.parent[0] = 0;
    push(frontier, 0, 0, marginal[0], 0);
  }
  inherit_sight(tree, 0, 0, words, lane);
  __syncwarp();
  int count = 1;
  for (; count < size; ++count) {
    const Candidate best = find_best(frontier, count, lane);
    if (best.probability == 0) break;
    const int slot = best.earliness_and_slot & 0xffff, from = frontier.parent[slot];
    inherit_sight(tree, count, from, words, lane);
    if (lane == 0) {
      const int position = tree.depth[from], rank = frontier.rank[slot];
      tree.probability[count] = __longlong_as_double(best.probability);
      tree.depth[count] = static_cast<short>(position + 1);
      out.write(count, from, position + 1, tokens[position * ranks + rank],
                tree.probability[count]);
      push_followers(frontier, tree, marginal, positions, ranks, slot, count, count);
    }
    __syncwarp();
  }
  for (int i = lane; i < count * words; i += WARP_LANES) out.sees[i] = tree.sees[i];
  clear_rest(out, count, size, words, lane);
  if (lane == 0) nodes[request] = count;
}
HOST_ENTRY(build_tree)
