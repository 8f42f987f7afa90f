/*
out[i] = in[index[i]]. Bug: launched with count = 0, an empty table, so that every index fails the
assertion of line 19. The correct version is ../gather_assert.cu.

    tegula check examples/cuda/bugs/gather_assert_fails.cu --kernel gather --grid 2 --block 64 \
        --arg 'in=f32[10]' --arg 'index=zero:i32[100]' --arg 'out=out:f32[100]' --arg n=100 \
        --arg count=0
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
