/*
The softmax of each row, one warp a row. Bug: the shuffle of line 24 is inside a loop that lanes
leave at different times, but its mask has all 32 lanes. The correct version is ../softmax.cu.

    tegula check examples/cuda/bugs/softmax_divergent_shuffle.cu --kernel softmax --grid 4 \
        --block 32,4 --arg 'x=f32[13,45]' --arg 'y=out:f32[13,45]' --arg rows=13 --arg cols=45
*/
constexpr float LOWEST = -3.4e38f;

__global__ void softmax(const float* x, float* y, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    const int lane = threadIdx.x;
    if (row >= rows) {
        return;
    }
    x += row * cols;
    y += row * cols;

    float largest = LOWEST;
    float sum = 0.0f;
    for (int col = lane; col < cols; col += 32) {
        float larger = fmaxf(largest, x[col]);
        for (int mask = 16; mask > 0; mask /= 2) {
            larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, mask));
        }
        sum = sum * expf(largest - larger) + expf(x[col] - larger);
        largest = larger;
    }
    for (int mask = 16; mask > 0; mask /= 2) {
        const float other_largest = __shfl_xor_sync(0xffffffffu, largest, mask);
        const float other_sum = __shfl_xor_sync(0xffffffffu, sum, mask);
        const float larger = fmaxf(largest, other_largest);
        sum = sum * expf(largest - larger) + other_sum * expf(other_largest - larger);
        largest = larger;
    }
    for (int col = lane; col < cols; col += 32) {
        y[col] = expf(x[col] - largest) / sum;
    }
}
