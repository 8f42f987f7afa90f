/*
C = A B, naive. Bug: the guard of line 13 allows row m: one row too many is read (line 16) and
stored (line 18). In the last column, n, the store writes to the next row instead. The correct
version is ../matmul_naive.cu.

    tegula check examples/cuda/bugs/matmul_off_by_one_guard.cu --kernel matmul_naive --grid 2,3 \
        --block 16,16 --arg 'A=f32[37,23]' --arg 'B=f32[23,29]' --arg 'C=out:f32[37,29]' \
        --arg m=37 --arg n=29 --arg k=23
*/
__global__ void matmul_naive(const float* A, const float* B, float* C, int m, int n, int k) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row <= m && col <= n) {
        float sum = 0.0f;
        for (int i = 0; i < k; ++i) {
            sum += A[row * k + i] * B[i * n + col];
        }
        C[row * n + col] = sum;
    }
}
