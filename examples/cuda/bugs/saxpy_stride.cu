/*
y = a x + y. Bug: the stride of the loop (line 17) is the block's, not the grid's, so that every
block updates the same elements (line 19). The correct version is ../saxpy_struct.cu.

    tegula check examples/cuda/bugs/saxpy_stride.cu --kernel saxpy --grid 3 --block 64 \
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
    const int stride = blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += stride) {
        y[i * p.y_stride] += p.a * x[i * p.x_stride];
    }
}
