/*
The sum of every 8 elements: a cooperative group of 8 lanes reduces with its own shuffles.

    tegula check examples/cuda/group_sums.cu --kernel group_sums --grid 3 --block 64 \
        --arg 'x=f32[150]' --arg 'sums=out:f32[19]' --arg n=150
*/
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__global__ void group_sums(const float* x, float* sums, int n) {
    const auto block = cg::this_thread_block();
    const auto group = cg::tiled_partition<8>(block);

    const int i = blockIdx.x * blockDim.x + block.thread_rank();
    float sum = i < n ? x[i] : 0.0f;
    for (int offset = group.size() / 2; offset > 0; offset /= 2) {
        sum += group.shfl_down(sum, offset);
    }
    if (group.thread_rank() == 0 && i < n) {
        sums[i / 8] = sum;
    }
}
