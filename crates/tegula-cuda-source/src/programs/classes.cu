#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>
#include <limits>
#include <cstdint>

struct Vec3 {
    float x, y, z;
    Vec3() = default;
    __host__ __device__ Vec3(float x, float y, float z) : x{x}, y(y), z(z) {}
    __host__ __device__ float dot(const Vec3& o) const { return x * o.x + y * o.y + z * o.z; }
    constexpr static int components() { return 3; }
    std::string text() const { std::ostringstream s; s << x; return s.str(); }
    void print(FILE* f) const;
    friend std::ostream& operator<<(std::ostream& s, const Vec3& v) { return s << v.x; }
};
__host__ __device__ inline Vec3 operator+(const Vec3& a, const Vec3& b) { return Vec3(a.x + b.x, a.y + b.y, a.z + b.z); }
void Vec3::print(FILE* f) const { fprintf(f, "%f\n", x); }

enum class Mode : std::uint8_t { sum, largest };
enum Flags { kNone, kAll = 4 };

template <typename T> struct Limits { static __device__ T lowest() { return -std::numeric_limits<T>::max(); } };

template <class T>
class Buffer {
public:
    explicit Buffer(std::size_t n) : size_(n) { cudaMalloc(&data_, n * sizeof(T)); }
    ~Buffer() { cudaFree(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    T* get() { return data_; }
    operator T*() { return data_; }
private:
    T* data_ = nullptr;
    std::size_t size_;
};

template <Mode mode, typename Op>
__global__ void fold(const Vec3* points, float* out, int n, Op op, Vec3 direction, Flags flags)
{
    float best = mode == Mode::sum ? 0.0f : Limits<float>::lowest();
    for (int i = threadIdx.x; i < n; i += blockDim.x) best = op(best, (points[i] + direction).dot(direction));
    if (flags != kNone) out[threadIdx.x] = best * Vec3::components();
}

struct Add { __device__ float operator()(float a, float b) const { return a + b; } };
struct Largest {
    __device__ float operator()(float a, float b) const { return max(a, b); }
};

class Engine {
public:
    virtual ~Engine() {}
    virtual void go(int n) = 0;
    std::vector<std::unique_ptr<Buffer<float>>> buffers;
};

class Real : public Engine {
    void go(int n) override
    {
        Buffer<Vec3> points(n);
        Buffer<float> out(64);
        fold<Mode::sum, Add><<<1, 64>>>(points.get(), out, n, Add(), Vec3(0, 0, 1), kAll);
        fold<Mode::largest, Largest><<<1, 64>>>(points, out, n, Largest{}, Vec3{1, 0, 0}, kAll);
    }
};

int main() { Real().Engine::~Engine(); }
