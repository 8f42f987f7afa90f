/*
Vector addition. Bug: the host program rounds the grid down (line 34), so that the last n % 64
elements are never stored. The correct version is ../vector_add.cu.

    tegula check examples/cuda/bugs/vector_add_floor_grid.cu --kernel vector_add --grid 15 \
        --block 64 --arg 'a=f32[1000]' --arg 'b=f32[1000]' --arg 'c=out:f32[1000]' --arg n=1000
*/
#include <cstdio>
#include <vector>

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}

// Host program: compares with a loop on the CPU.
int main() {
    const int n = 1000;
    std::vector<float> a(n), b(n), c(n);
    for (int i = 0; i < n; ++i) {
        a[i] = 0.5f * (i % 1000);
        b[i] = 0.25f * (i % 333);
    }

    float *device_a, *device_b, *device_c;
    cudaMalloc(&device_a, n * sizeof(float));
    cudaMalloc(&device_b, n * sizeof(float));
    cudaMalloc(&device_c, n * sizeof(float));
    cudaMemcpy(device_a, a.data(), n * sizeof(float), cudaMemcpyHostToDevice);
    cudaMemcpy(device_b, b.data(), n * sizeof(float), cudaMemcpyHostToDevice);

    vector_add<<<n / 64, 64>>>(device_a, device_b, device_c, n);

    const cudaError_t status =
        cudaMemcpy(c.data(), device_c, n * sizeof(float), cudaMemcpyDeviceToHost);
    if (status != cudaSuccess) {
        std::printf("%s\n", cudaGetErrorString(status));
        return 1;
    }
    int wrong = 0;
    for (int i = 0; i < n; ++i) {
        wrong += c[i] != a[i] + b[i];
    }
    std::printf("%d of %d elements are wrong\n", wrong, n);
    cudaFree(device_a);
    cudaFree(device_b);
    cudaFree(device_c);
    return wrong != 0;
}
