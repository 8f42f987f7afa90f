#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/sort.h>
#include <cub/cub.cuh>
#include <fstream>
#include <map>

struct Square {
    __host__ __device__ float operator()(float x) const { return x * x; }
};

template <typename F>
__global__ void apply(float* data, int n, F f)
{
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) data[i] = f(data[i]);
}

using HostVector = thrust::host_vector<float>;
typedef std::map<std::string, int> Counts;

struct Cache {
    thrust::device_vector<float> data;
    Counts counts;
    void add(const std::string& key) { ++counts[key]; }
};

int main(int argc, char* argv[])
{
    HostVector h(1000);
    thrust::device_vector<float> d = h;
    thrust::sort(d.begin(), d.end());
    apply<Square><<<4, 250>>>(thrust::raw_pointer_cast(d.data()), 1000, Square{});
    auto add = [](int a, int b) { return a + b; };
    std::ofstream file("out.txt");
    file << add(1, 2) << R"(raw { string")" << '\n';
    return 0;
}
