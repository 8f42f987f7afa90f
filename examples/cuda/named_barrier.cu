/*
Each half of a block sums its own 64 elements, with its own barrier: the halves do not wait for each
other. `bar.sync b, 64` waits at barrier b for 64 threads.

    tegula check examples/cuda/named_barrier.cu --kernel half_sums --grid 2 --block 128 \
        --arg 'x=f32[250]' --arg 'sums=out:f32[4]' --arg n=250
*/
constexpr int HALF = 64;

__device__ void wait_for_half(int half) {
    asm volatile("bar.sync %0, 64;" : : "r"(half + 1) : "memory");
}

__global__ void half_sums(const float* x, float* sums, int n) {
    __shared__ float partial[2][HALF];

    const int half = threadIdx.x / HALF;
    const int tid = threadIdx.x % HALF;
    const int i = blockIdx.x * 2 * HALF + threadIdx.x;
    partial[half][tid] = i < n ? x[i] : 0.0f;
    wait_for_half(half);

    for (int distance = HALF / 2; distance > 0; distance /= 2) {
        if (tid < distance) {
            partial[half][tid] += partial[half][tid + distance];
        }
        wait_for_half(half);
    }
    if (tid == 0) {
        sums[blockIdx.x * 2 + half] = partial[half][0];
    }
}
