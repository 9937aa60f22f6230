// Walks the verified tree of each request greedily, without walking: a node is right when its
// token is the target's choice at its parent, and accepted when its whole path is right, which is
// one AND of what it sees with the set of wrong nodes. The deepest accepted node wins.
//
// Siblings must have different tokens, as the ranks of one position do. One warp a request.
#include "device.cuh"

namespace {

constexpr int MOST_WORDS = 8;  // 256 nodes, the root among them

struct Nodes {
  const int *token, *parent, *depth;
  const unsigned* sees;
  const int* target;
  int count, words;

  __device__ bool is_wrong(int node) const {
    return node >= count || (node > 0 && token[node] != target[parent[node]]);
  }
  __device__ bool sees_any(int node, const unsigned* set) const {
    unsigned hit = 0;
    for (int w = 0; w < words; ++w) hit |= sees[node * words + w] & set[w];
    return hit != 0;
  }
  __device__ bool sees_node(int node, int other) const {
    return sees[node * words + other / 32] >> other % 32 & 1u;
  }
};

__device__ void find_wrong(const Nodes& nodes, unsigned* wrong, int lane) {
  for (int w = 0; w < nodes.words; ++w) {
    const unsigned votes = __ballot_sync(ALL_LANES, nodes.is_wrong(w * 32 + lane));
    if (lane == 0) wrong[w] = votes;
  }
  __syncwarp();
}

// The deepest node with a right path; of several the first.
__device__ int find_leaf(const Nodes& nodes, const unsigned* wrong, int lane) {
  unsigned best = 0;
  for (int i = lane; i < nodes.count; i += WARP_LANES)
    if (!nodes.sees_any(i, wrong))
      best = max(best, static_cast<unsigned>(nodes.depth[i]) << 16 | (0xffffu - i));
  return 0xffff - static_cast<int>(warp_max(best) & 0xffffu);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(WARP_LANES) accept_tree(
    const int* __restrict__ token,  // [requests][size], as build_tree writes them
    const int* __restrict__ parent, const int* __restrict__ depth,
    const unsigned* __restrict__ sees,  // [requests][size][words]
    const int* __restrict__ nodes,      // [requests], the root among them
    const int* __restrict__ target,     // [requests][size]: the target's token after each node
    int size, int words,
    int* __restrict__ length,       // [requests]: committed tokens, the target's own among them
    int* __restrict__ path,         // [requests][size]: accepted nodes after the root, then -1
    int* __restrict__ committed) {  // [requests][size]: their tokens and the target's next, then -1
  __shared__ unsigned wrong[MOST_WORDS];
  const int lane = threadIdx.x, row = blockIdx.x * size;
  const Nodes tree = {token + row,  parent + row,      depth + row, sees + row * words,
                      target + row, nodes[blockIdx.x], words};
  find_wrong(tree, wrong, lane);
  const int leaf = find_leaf(tree, wrong, lane), accepted = tree.depth[leaf];
  for (int i = lane; i < size; i += WARP_LANES) path[row + i] = committed[row + i] = -1;
  __syncwarp();
  for (int i = 1 + lane; i < tree.count; i += WARP_LANES)
    if (tree.sees_node(leaf, i)) {
      path[row + tree.depth[i] - 1] = i;
      committed[row + tree.depth[i] - 1] = tree.token[i];
    }
  if (lane == 0) {
    length[blockIdx.x] = accepted + 1;
    committed[row + accepted] = tree.target[leaf];
  }
}
HOST_ENTRY(accept_tree)
