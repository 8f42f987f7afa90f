/*
out[i] = in[index[i]], with an assertion on every index; the first thread prints how many.

    tegula check examples/cuda/gather_assert.cu --kernel gather --grid 2 --block 64 \
        --arg 'in=f32[10]' --arg 'index=zero:i32[100]' --arg 'out=out:f32[100]' --arg n=100 \
        --arg count=10
*/
#include <cassert>
#include <cstdio>

__global__ void gather(const float* in, const int* index, float* out, int n, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) {
        printf("gathering %d of %d elements\n", n, count);
    }
    if (i < n) {
        const int at = index[i];
        assert(at >= 0 && at < count);
        out[i] = in[at];
    }
}
