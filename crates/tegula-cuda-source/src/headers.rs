//! Tables of headers: those replaced by an empty or own text, and the packages of missing ones.

/// Declarations of the standard headers, which NVRTC lacks: types, limits, constants, `std::max`.
pub(super) const PRELUDE: &str = include_str!("prelude.cuh");

/// `std::numeric_limits`, type traits, `std::array`, `std::pair`.
pub(super) const TEMPLATES: &str = include_str!("templates.cuh");

/// Names of `namespace std` that are in [`TEMPLATES`]; all others are in [`PRELUDE`].
pub(super) const TEMPLATE_NAMES: &[&str] = &[
    "array",
    "bool_constant",
    "conditional",
    "conditional_t",
    "decay",
    "decay_t",
    "enable_if",
    "enable_if_t",
    "false_type",
    "integral_constant",
    "is_arithmetic",
    "is_arithmetic_v",
    "is_floating_point",
    "is_floating_point_v",
    "is_integral",
    "is_integral_v",
    "is_pointer",
    "is_pointer_v",
    "is_same",
    "is_same_v",
    "make_pair",
    "numeric_limits",
    "pair",
    "remove_const",
    "remove_const_t",
    "remove_cv",
    "remove_cv_t",
    "remove_pointer",
    "remove_pointer_t",
    "remove_reference",
    "remove_reference_t",
    "remove_volatile",
    "true_type",
    "void_t",
];

/// Headers that declare `assert`.
const ASSERT: &[&str] = &["assert.h", "cassert"];

/// `assert` is built into NVRTC; `NDEBUG` removes it.
const ASSERT_TEXT: &str = "#ifdef NDEBUG\n#undef assert\n#define assert(condition) ((void)0)\n#endif\n";

/// Headers of C, C++, the system and the CUDA host API, which are replaced by empty ones. Kernels
/// use only parts of them that are in the prelude or built into the compiler.
const EMPTY: &[&str] = &[
    // C
    "complex.h",
    "ctype.h",
    "errno.h",
    "fenv.h",
    "float.h",
    "inttypes.h",
    "limits.h",
    "locale.h",
    "malloc.h",
    "math.h",
    "memory.h",
    "omp.h",
    "setjmp.h",
    "signal.h",
    "stdalign.h",
    "stdarg.h",
    "stdbool.h",
    "stddef.h",
    "stdint.h",
    "stdio.h",
    "stdlib.h",
    "string.h",
    "strings.h",
    "time.h",
    "wchar.h",
    // C++
    "algorithm",
    "any",
    "array",
    "atomic",
    "barrier",
    "bit",
    "bitset",
    "cctype",
    "cerrno",
    "cfenv",
    "cfloat",
    "charconv",
    "chrono",
    "cinttypes",
    "climits",
    "clocale",
    "cmath",
    "compare",
    "complex",
    "concepts",
    "condition_variable",
    "coroutine",
    "csetjmp",
    "csignal",
    "cstdalign",
    "cstdarg",
    "cstdbool",
    "cstddef",
    "cstdint",
    "cstdio",
    "cstdlib",
    "cstring",
    "ctime",
    "cwchar",
    "deque",
    "exception",
    "execution",
    "expected",
    "filesystem",
    "format",
    "forward_list",
    "fstream",
    "functional",
    "future",
    "initializer_list",
    "iomanip",
    "ios",
    "iosfwd",
    "iostream",
    "istream",
    "iterator",
    "latch",
    "limits",
    "list",
    "locale",
    "map",
    "memory",
    "memory_resource",
    "mutex",
    "new",
    "numbers",
    "numeric",
    "optional",
    "ostream",
    "print",
    "queue",
    "random",
    "ranges",
    "ratio",
    "regex",
    "semaphore",
    "set",
    "shared_mutex",
    "source_location",
    "span",
    "sstream",
    "stack",
    "stdexcept",
    "stop_token",
    "streambuf",
    "string",
    "string_view",
    "strstream",
    "system_error",
    "thread",
    "tuple",
    "type_traits",
    "typeindex",
    "typeinfo",
    "unordered_map",
    "unordered_set",
    "utility",
    "valarray",
    "variant",
    "vector",
    "version",
    // Systems
    "conio.h",
    "dirent.h",
    "dlfcn.h",
    "fcntl.h",
    "getopt.h",
    "io.h",
    "libgen.h",
    "pthread.h",
    "sched.h",
    "unistd.h",
    "windows.h",
    "Windows.h",
    "immintrin.h",
    "x86intrin.h",
    "xmmintrin.h",
    // The CUDA host API. Its device parts are built into NVRTC.
    "builtin_types.h",
    "channel_descriptor.h",
    "cuda.h",
    "cudaEGL.h",
    "cudaGL.h",
    "cudaProfiler.h",
    "cuda_device_runtime_api.h",
    "cuda_gl_interop.h",
    "cuda_profiler_api.h",
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "curand.h",
    "device_functions.h",
    "device_launch_parameters.h",
    "driver_types.h",
    "math_functions.h",
    "nccl.h",
    "npp.h",
    "nvToolsExt.h",
    "nvml.h",
    "nvrtc.h",
    "sm_20_atomic_functions.h",
    "sm_30_intrinsics.h",
    "sm_35_intrinsics.h",
    "sm_60_atomic_functions.h",
    "surface_functions.h",
    "texture_fetch_functions.h",
    "vector_functions.h",
    "device_atomic_functions.h",
    // Libraries that a host program calls
    "cublas.h",
    "cublasLt.h",
    "cublasXt.h",
    "cublas_v2.h",
    "cublas_api.h",
    "cudnn.h",
    "cufft.h",
    "cufftXt.h",
    "cusolverDn.h",
    "cusolverSp.h",
    "cusparse.h",
    "cusparse_v2.h",
    "mpi.h",
    "zlib.h",
    // NVIDIA's samples
    "exception.h",
    "helper_cuda.h",
    "helper_cuda_drvapi.h",
    "helper_functions.h",
    "helper_gl.h",
    "helper_image.h",
    "helper_math_host.h",
    "helper_multiprocess.h",
    "helper_string.h",
    "helper_timer.h",
    "nvrtc_helper.h",
    "sdkHelper.h",
    "cutil.h",
    "cutil_inline.h",
    "shrUtils.h",
];

/// Folders of headers that only host programs use.
const EMPTY_FOLDERS: &[&str] = &[
    "sys/",
    "bits/",
    "boost/",
    "opencv2/",
    "Eigen/",
    "benchmark/",
    "gtest/",
    "fmt/",
    "nlohmann/",
    "GL/",
    "GLFW/",
    "EGL/",
    "X11/",
    "torch/",
    "ATen/",
    "c10/",
    "pybind11/",
    "arpa/",
    "netinet/",
    "experimental/",
    "range/",
    "spdlog/",
    "nvtx3/",
];

/// Folders of headers for both host code and kernels. The compiler reads them only if a kernel uses
/// their namespace.
pub(super) const BY_NAMESPACE: &[(&str, &str)] = &[("thrust/", "thrust"), ("cub/", "cub")];

/// Library headers that include the half-precision types, by prefix.
const WITH_HALF: &[&str] = &["cublas", "cudnn", "cusparse", "cusolver", "curand.h", "nccl"];

/// Names of the half-precision types, and the text that includes them.
pub(super) const HALF_NAMES: &[&str] =
    &["half", "half2", "__half", "__half2", "nv_bfloat16", "__nv_bfloat16", "__nv_bfloat162"];
pub(super) const HALF_TEXT: &str = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n";

/// Whether a header includes the half-precision types.
pub(super) fn brings_half(name: &str) -> bool {
    WITH_HALF.iter().any(|prefix| name.starts_with(prefix))
}

/// CUB headers by the name that a kernel uses. They replace `cub/cub.cuh`, which NVRTC rejects.
pub(super) const CUB: &[(&str, &str)] = &[
    ("BlockAdjacentDifference", "block/block_adjacent_difference.cuh"),
    ("BlockDiscontinuity", "block/block_discontinuity.cuh"),
    ("BlockExchange", "block/block_exchange.cuh"),
    ("BlockHistogram", "block/block_histogram.cuh"),
    ("BlockLoad", "block/block_load.cuh"),
    ("BlockMergeSort", "block/block_merge_sort.cuh"),
    ("BlockRadixSort", "block/block_radix_sort.cuh"),
    ("BlockReduce", "block/block_reduce.cuh"),
    ("BlockScan", "block/block_scan.cuh"),
    ("BlockShuffle", "block/block_shuffle.cuh"),
    ("BlockStore", "block/block_store.cuh"),
    ("WarpExchange", "warp/warp_exchange.cuh"),
    ("WarpLoad", "warp/warp_load.cuh"),
    ("WarpMergeSort", "warp/warp_merge_sort.cuh"),
    ("WarpReduce", "warp/warp_reduce.cuh"),
    ("WarpScan", "warp/warp_scan.cuh"),
    ("WarpStore", "warp/warp_store.cuh"),
];

/// `pip` packages of headers: prefix of the header, packages for CUDA 13, packages for CUDA 12.
const PACKAGES: &[(&str, &str, &str)] = &[
    ("crt/", "nvidia-cuda-crt", "nvidia-cuda-nvcc-cu12"),
    ("mma.h", "nvidia-cuda-crt nvidia-cuda-runtime", "nvidia-cuda-nvcc-cu12 nvidia-cuda-runtime-cu12"),
    ("cuda/", "nvidia-cuda-cccl", "nvidia-cuda-cccl-cu12"),
    ("nv/", "nvidia-cuda-cccl", "nvidia-cuda-cccl-cu12"),
    ("cub/", "nvidia-cuda-cccl", "nvidia-cuda-cccl-cu12"),
    ("thrust/", "nvidia-cuda-cccl", "nvidia-cuda-cccl-cu12"),
    ("curand", "nvidia-curand", "nvidia-curand-cu12"),
    ("cuda_", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    ("cooperative_groups", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    ("cuComplex.h", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    ("math_constants.h", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    ("vector_types.h", "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    ("cutlass/", "nvidia-cutlass", "nvidia-cutlass"),
    ("cute/", "nvidia-cutlass", "nvidia-cutlass"),
];

/// The `pip` packages that contain a header, for a major version of CUDA.
pub(super) fn package(header: &str, major: u32) -> Option<&'static str> {
    let found = PACKAGES.iter().find(|(prefix, ..)| header.starts_with(prefix))?;
    Some(if major >= 13 { found.1 } else { found.2 })
}

/// Whether a header is of the standard library, the system or the CUDA host API.
pub(super) fn is_standard(name: &str) -> bool {
    virtual_text(name).is_some()
}

/// The text that replaces a header of the standard library, the system or the CUDA host API.
pub(super) fn virtual_text(name: &str) -> Option<&'static str> {
    if ASSERT.contains(&name) {
        return Some(ASSERT_TEXT);
    }
    let empty = EMPTY.contains(&name) || EMPTY_FOLDERS.iter().any(|folder| name.starts_with(folder));
    empty.then_some("\n")
}

/// All replaced headers with their texts, for headers included by files that the compiler reads.
pub(super) fn virtual_headers() -> impl Iterator<Item = (&'static str, &'static str)> {
    ASSERT.iter().chain(EMPTY).filter_map(|name| virtual_text(name).map(|text| (*name, text)))
}

/// Whether `std::name` can be used in a kernel.
pub(super) fn in_namespace_std(name: &str) -> bool {
    TEMPLATE_NAMES.contains(&name)
        || ["move", "forward", "initializer_list"].contains(&name)
        || PRELUDE.contains(&format!("using ::{name};"))
        || ["min", "max", "clamp", "swap"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_text_is_for_headers_without_device_code() {
        for name in ["vector", "cuda_runtime.h", "sys/time.h", "cmath", "cassert"] {
            assert!(is_standard(name), "{name}");
        }
        for name in ["cuda_fp16.h", "mma.h", "cooperative_groups.h", "cuda/std/array", "my.h", "curand_kernel.h"] {
            assert!(!is_standard(name), "{name}");
        }
    }

    #[test]
    fn package_depends_on_the_version_of_cuda() {
        assert_eq!(package("crt/mma.h", 13), Some("nvidia-cuda-crt"));
        assert_eq!(package("cuda_fp16.h", 12), Some("nvidia-cuda-runtime-cu12"));
        assert_eq!(package("own.h", 13), None);
    }

    #[test]
    fn template_names_are_those_of_the_text() {
        for name in TEMPLATE_NAMES {
            let declared = ["struct ", "using ", "bool ", "> "].iter().any(|word| {
                TEMPLATES.contains(&format!("{word}{name} ")) || TEMPLATES.contains(&format!("{word}{name}("))
            });
            assert!(declared || TEMPLATES.contains(&format!(" {name};")), "{name}");
        }
        assert!(in_namespace_std("sqrt") && in_namespace_std("max") && !in_namespace_std("vector"));
    }
}
