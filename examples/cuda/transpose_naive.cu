/*
out = transpose of in, straight from global to global memory. Correct, but slow: a warp stores one
column, so each request touches 32 sectors (line 14).

    tegula check examples/cuda/transpose_naive.cu --kernel transpose_naive --grid 3,6 \
        --block 32,8 --arg 'in=f32[45,70]' --arg 'out=out:f32[70,45]' --arg rows=45 \
        --arg cols=70
*/
__global__ void transpose_naive(const float* in, float* out, int rows, int cols) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows && col < cols) {
        const float value = in[row * cols + col];
        out[col * rows + row] = value;
    }
}
