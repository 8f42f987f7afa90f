/*
The sum of each row, one thread a row. Correct, but slow: the lanes of a warp read 32 different
rows, 32 sectors a request (line 13). One warp a row would read 4.

    tegula check examples/cuda/row_sum_uncoalesced.cu --kernel row_sum --grid 1 --block 64 \
        --arg 'in=f32[50,37]' --arg 'sums=out:f32[50]' --arg rows=50 --arg cols=37
*/
__global__ void row_sum(const float* in, float* sums, int rows, int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        float sum = 0.0f;
        for (int col = 0; col < cols; ++col) {
            sum += in[row * cols + col];
        }
        sums[row] = sum;
    }
}
