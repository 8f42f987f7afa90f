/*
A copy of all floats but the first, four at a time. Bug: in + 1 is not aligned to 16 bytes, so that
the load of line 15 is misaligned. The correct version is ../copy_float4.cu.

    tegula check examples/cuda/bugs/copy_float4_misaligned.cu --kernel copy_float4 --grid 2 \
        --block 64 --arg 'in=f32[1004]' --arg 'out=out:f32[1003]' --arg n=1003
*/
__global__ void copy_float4(const float* in, float* out, int n) {
    const float4* from = reinterpret_cast<const float4*>(in + 1);
    float4* to = reinterpret_cast<float4*>(out);

    const int first = blockIdx.x * blockDim.x + threadIdx.x;
    const int stride = gridDim.x * blockDim.x;
    for (int i = first; i < n / 4; i += stride) {
        to[i] = from[i];
    }

    const int rest = n / 4 * 4 + first;
    if (rest < n) {
        out[rest] = in[rest + 1];
    }
}
