/*
y = a x + y for vectors with a stride; the scalars are passed in one struct, by value.

    tegula check examples/cuda/saxpy_struct.cu --kernel saxpy --grid 3 --block 64 \
        --arg 'p={"a":2.5,"n":500,"x_stride":2,"y_stride":3}' --arg 'x=f32[999]' \
        --arg 'y=f32[1498]'
*/
struct Saxpy {
    float a;
    int n;
    int x_stride;
    int y_stride;
};

__global__ void saxpy(Saxpy p, const float* x, float* y) {
    const int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += stride) {
        y[i * p.y_stride] += p.a * x[i * p.x_stride];
    }
}
