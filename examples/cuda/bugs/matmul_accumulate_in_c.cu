/*
C = A B, naive. Bug: line 14 accumulates in C itself, which nothing has set to zero. The correct
version is ../matmul_naive.cu.

    tegula check examples/cuda/bugs/matmul_accumulate_in_c.cu --kernel matmul_naive --grid 2,1 \
        --block 16,16 --arg 'A=f32[13,23]' --arg 'B=f32[23,29]' --arg 'C=out:f32[13,29]' \
        --arg m=13 --arg n=29 --arg k=23
*/
__global__ void matmul_naive(const float* A, const float* B, float* C, int m, int n, int k) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m && col < n) {
        for (int i = 0; i < k; ++i) {
            C[row * n + col] += A[row * k + i] * B[i * n + col];
        }
    }
}
