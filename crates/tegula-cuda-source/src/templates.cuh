// Templates of the standard library. Included only if a kernel uses one of their names.
#ifndef TEGULA_TEMPLATES
#define TEGULA_TEMPLATES

namespace std {

#define TEGULA_BOTH __host__ __device__ constexpr

template <class T, T v> struct integral_constant {
    static constexpr T value = v;
    typedef T value_type;
    typedef integral_constant type;
    TEGULA_BOTH operator T() const { return v; }
};
template <bool v> using bool_constant = integral_constant<bool, v>;
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;

template <bool condition, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool condition, class T = void> using enable_if_t = typename enable_if<condition, T>::type;
template <bool condition, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool condition, class A, class B>
using conditional_t = typename conditional<condition, A, B>::type;
template <class...> using void_t = void;

template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> struct remove_volatile { typedef T type; };
template <class T> struct remove_volatile<volatile T> { typedef T type; };
template <class T> struct remove_cv { typedef typename remove_volatile<typename remove_const<T>::type>::type type; };
template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T&> { typedef T type; };
template <class T> struct remove_reference<T&&> { typedef T type; };
template <class T> struct remove_pointer { typedef T type; };
template <class T> struct remove_pointer<T*> { typedef T type; };
template <class T> struct decay { typedef typename remove_cv<typename remove_reference<T>::type>::type type; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> using decay_t = typename decay<T>::type;
template <class T> struct is_pointer : false_type {};
template <class T> struct is_pointer<T*> : true_type {};
template <class T> struct is_integral : false_type {};
template <class T> struct is_floating_point : false_type {};
template <> struct is_floating_point<float> : true_type {};
template <> struct is_floating_point<double> : true_type {};

template <class T> struct numeric_limits {
    enum : bool { is_specialized = false };
};
// Enumerators, because static members would be variables of the PTX.
#define TEGULA_INTEGER(T, low, high)                                                             \
    template <> struct is_integral<T> : true_type {};                                            \
    template <> struct numeric_limits<T> {                                                       \
        enum : bool { is_specialized = true, is_integer = true, has_infinity = false };          \
        enum : bool { is_signed = static_cast<T>(-1) < static_cast<T>(0) };                      \
        enum : int { digits = sizeof(T) * 8 - int(is_signed) };                                  \
        static TEGULA_BOTH T min() { return low; }                                               \
        static TEGULA_BOTH T lowest() { return low; }                                            \
        static TEGULA_BOTH T max() { return high; }                                              \
    };
template <> struct is_integral<bool> : true_type {};
TEGULA_INTEGER(char, CHAR_MIN, CHAR_MAX)
TEGULA_INTEGER(signed char, SCHAR_MIN, SCHAR_MAX)
TEGULA_INTEGER(unsigned char, 0, UCHAR_MAX)
TEGULA_INTEGER(short, SHRT_MIN, SHRT_MAX)
TEGULA_INTEGER(unsigned short, 0, USHRT_MAX)
TEGULA_INTEGER(int, INT_MIN, INT_MAX)
TEGULA_INTEGER(unsigned int, 0, UINT_MAX)
TEGULA_INTEGER(long, LONG_MIN, LONG_MAX)
TEGULA_INTEGER(unsigned long, 0, ULONG_MAX)
TEGULA_INTEGER(long long, LLONG_MIN, LLONG_MAX)
TEGULA_INTEGER(unsigned long long, 0, ULLONG_MAX)
#undef TEGULA_INTEGER
#if __CUDACC_VER_MAJOR__ >= 12
#define TEGULA_CONSTANT TEGULA_BOTH
#else
#define TEGULA_CONSTANT __device__ inline
#endif
#define TEGULA_REAL(T, prefix, infinite, nan)                                                    \
    template <> struct numeric_limits<T> {                                                       \
        enum : bool { is_specialized = true, is_integer = false, has_infinity = true };          \
        enum : bool { is_signed = true };                                                        \
        enum : int { digits = prefix##_MANT_DIG, digits10 = prefix##_DIG };                      \
        static TEGULA_BOTH T min() { return prefix##_MIN; }                                      \
        static TEGULA_BOTH T lowest() { return -prefix##_MAX; }                                  \
        static TEGULA_BOTH T max() { return prefix##_MAX; }                                      \
        static TEGULA_BOTH T epsilon() { return prefix##_EPSILON; }                              \
        static TEGULA_CONSTANT T infinity() { return infinite; }                                 \
        static TEGULA_CONSTANT T quiet_NaN() { return nan; }                                     \
    };
TEGULA_REAL(float, FLT, INFINITY, NAN)
TEGULA_REAL(double, DBL, HUGE_VAL, TEGULA_DOUBLE(0x7ff8000000000000ll))
#undef TEGULA_REAL

template <class T> struct is_arithmetic : bool_constant<is_integral<T>::value || is_floating_point<T>::value> {};
#if __cplusplus >= 201703L
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class T> inline constexpr bool is_integral_v = is_integral<T>::value;
template <class T> inline constexpr bool is_floating_point_v = is_floating_point<T>::value;
template <class T> inline constexpr bool is_arithmetic_v = is_arithmetic<T>::value;
template <class T> inline constexpr bool is_pointer_v = is_pointer<T>::value;
#endif

template <class A, class B> struct pair {
    typedef A first_type;
    typedef B second_type;
    A first;
    B second;
};
template <class A, class B> TEGULA_BOTH pair<A, B> make_pair(A a, B b) { return pair<A, B>{a, b}; }

template <class T, size_t N> struct array {
    typedef T value_type;
    T elements[N];
    __host__ __device__ T& operator[](size_t i) { return elements[i]; }
    TEGULA_BOTH const T& operator[](size_t i) const { return elements[i]; }
    __host__ __device__ T* data() { return elements; }
    TEGULA_BOTH const T* data() const { return elements; }
    TEGULA_BOTH size_t size() const { return N; }
    __host__ __device__ T* begin() { return elements; }
    __host__ __device__ T* end() { return elements + N; }
    TEGULA_BOTH const T* begin() const { return elements; }
    TEGULA_BOTH const T* end() const { return elements + N; }
};

#undef TEGULA_CONSTANT
#undef TEGULA_BOTH

} // namespace std

#endif // TEGULA_TEMPLATES
