/*
A copy of n floats, four at a time; the last n % 4 are copied one by one.

    tegula check examples/cuda/copy_float4.cu --kernel copy_float4 --grid 2 --block 64 \
        --arg 'in=f32[1003]' --arg 'out=out:f32[1003]' --arg n=1003
*/
__global__ void copy_float4(const float* in, float* out, int n) {
    const float4* from = reinterpret_cast<const float4*>(in);
    float4* to = reinterpret_cast<float4*>(out);

    const int first = blockIdx.x * blockDim.x + threadIdx.x;
    const int stride = gridDim.x * blockDim.x;
    for (int i = first; i < n / 4; i += stride) {
        to[i] = from[i];
    }

    const int rest = n / 4 * 4 + first;
    if (rest < n) {
        out[rest] = in[rest];
    }
}
