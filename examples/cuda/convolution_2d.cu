/*
A convolution in two dimensions with 3x3 weights in constant memory, straight from global memory;
elements outside the image count as 0.

    tegula check examples/cuda/convolution_2d.cu --kernel convolution_2d --grid 2,4 --block 16,8 \
        --arg 'in=f32[30,21]' --arg 'out=out:f32[30,21]' --arg rows=30 --arg cols=21
*/
constexpr int RADIUS = 1;
constexpr int WIDTH = 2 * RADIUS + 1;

__constant__ float weights[WIDTH][WIDTH] = {{-1, 0, 1}, {-2, 0, 2}, {-1, 0, 1}};  // Sobel

__global__ void convolution_2d(const float* in, float* out, int rows, int cols) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows || col >= cols) {
        return;
    }
    float sum = 0.0f;
    for (int dy = -RADIUS; dy <= RADIUS; ++dy) {
        for (int dx = -RADIUS; dx <= RADIUS; ++dx) {
            const int y = row + dy;
            const int x = col + dx;
            if (y >= 0 && y < rows && x >= 0 && x < cols) {
                sum += weights[dy + RADIUS][dx + RADIUS] * in[y * cols + x];
            }
        }
    }
    out[row * cols + col] = sum;
}
