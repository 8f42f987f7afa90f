//! Peer libraries on the CPU, for comparison.
//!
//! - `blas`: libraries with the C interface of BLAS, loaded at run time;
//! - `onednn`: oneDNN, loaded at run time;
//! - `crates`: Rust crates, with the feature `peers`.
//!
//! A library prepares a product once and then runs it repeatedly: [`PreparedProduct`].

mod blas;
#[cfg(feature = "peers")]
mod crates;
mod onednn;
mod prepared;
#[cfg(test)]
mod tests;
mod version;

use std::ffi::c_int;
use std::{env, fmt};

use libloading::Library;
pub use prepared::PreparedProduct;
use prepared::{Operand, PeerProblem};
use tegula::element::{Element, Scalar};
use tegula::error::{Error, Result};
use tegula::matrix::{Shape, View, check_product};

/// A peer library on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blas {
    /// Intel MKL.
    Mkl,
    /// OpenBLAS, including the builds of NumPy and SciPy.
    OpenBlas,
    /// BLIS.
    Blis,
    /// oneDNN.
    OneDnn,
    /// The crate `gemm`.
    Gemm,
    /// The crate `matrixmultiply`, on one thread.
    Matrixmultiply,
}

/// How to find a library.
struct LibrarySearch {
    name: &'static str,
    /// Environment variable with the library's path.
    variable: &'static str,
    /// File names for the dynamic linker, without the variable.
    files: &'static [&'static str],
    advice: &'static str,
}

impl Blas {
    /// How to find the library; `None` for a crate.
    const fn search(self) -> Option<LibrarySearch> {
        Some(match self {
            Blas::Mkl => LibrarySearch {
                name: "MKL",
                variable: "TEGULA_MKL",
                files: &["libmkl_rt.so.2", "libmkl_rt.so", "libmkl_rt.so.3"],
                advice: "set TEGULA_MKL to the path of libmkl_rt (in the PyPI package mkl)",
            },
            Blas::OpenBlas => LibrarySearch {
                name: "OpenBLAS",
                variable: "TEGULA_OPENBLAS",
                files: &["libopenblas.so.0", "libopenblas.so"],
                advice: "set TEGULA_OPENBLAS to its path (in Debian's libopenblas0 and the PyPI package scipy-openblas64)",
            },
            Blas::Blis => LibrarySearch {
                name: "BLIS",
                variable: "TEGULA_BLIS",
                files: &["libblis.so.4", "libblis.so"],
                advice: "set TEGULA_BLIS to its path (in Debian's libblis4)",
            },
            Blas::OneDnn => LibrarySearch {
                name: "oneDNN",
                variable: "TEGULA_ONEDNN",
                files: &["libdnnl.so.3", "libdnnl.so"],
                advice: "set TEGULA_ONEDNN to the path of a libdnnl built for OpenMP (in the PyPI package onednn-cpu-gomp)",
            },
            Blas::Gemm | Blas::Matrixmultiply => return None,
        })
    }
}

/// A loaded peer library.
pub struct PeerLibrary {
    name: String,
    kind: Kind,
}

enum Kind {
    Blas(blas::Functions),
    OneDnn(onednn::Functions),
    #[cfg(feature = "peers")]
    Crate(crates::Crate),
}

impl fmt::Debug for PeerLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl PeerLibrary {
    /// Loads a library: from the path in its environment variable, or as the system finds it.
    ///
    /// # Errors
    /// [`Error::PeerUnavailable`] if the library or a function of it is not found.
    pub fn open(which: Blas) -> Result<PeerLibrary> {
        let Some(search) = which.search() else { return built_in(which) };
        // The library is never unloaded: its threads may outlive the last call.
        let library: &'static Library = Box::leak(Box::new(open(&search)?));
        let unavailable =
            |why: &str| Error::PeerUnavailable { library: search.name, why: why.into(), advice: search.advice };
        // SAFETY: `library` is the library `which`.
        let (kind, version) = unsafe {
            let version = version::of(library, which);
            let kind = if which == Blas::OneDnn {
                onednn::Functions::of(library).map(Kind::OneDnn)
            } else {
                blas::Functions::of(library, which).map(Kind::Blas)
            };
            (kind.map_err(unavailable)?, version)
        };
        let name = version.map_or_else(|| search.name.into(), |version| format!("{} {version}", search.name));
        Ok(PeerLibrary { name, kind })
    }

    /// Name and, if known, version.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the number of threads, for products that are prepared afterwards.
    ///
    /// Call it after all libraries are open: some bring threads that others use.
    pub fn set_threads(&self, count: usize) {
        match &self.kind {
            Kind::Blas(functions) => functions.threads.set(count),
            Kind::OneDnn(functions) => functions.set_threads(count),
            // Crates take the number of threads per product.
            #[cfg(feature = "peers")]
            Kind::Crate(_) => {}
        }
    }

    /// Prepares C ← alpha·A·B + beta·C with each function of the library that supports it.
    ///
    /// C is row-major; [`PreparedProduct::set_c`] sets its initial value.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not agree, [`Error::OutOfMemory`].
    pub fn prepare<'a, T: Element>(
        &'a self,
        alpha: T::Acc,
        a: View<'a, T>,
        b: View<'a, T>,
        beta: T::Acc,
    ) -> Result<Vec<PreparedProduct<'a, T>>> {
        let (Some(a_operand), Some(b_operand)) = (Operand::of(a), Operand::of(b)) else { return Ok(Vec::new()) };
        let shape = Shape { batches: a.shape().batches, rows: a.shape().rows, cols: b.shape().cols };
        check_product(a.shape(), b.shape(), shape)?;
        let scalars = [alpha.to_bits(), beta.to_bits()];
        let product = PeerProblem { ty: T::TYPE, shape, k: a.shape().cols, a: a_operand, b: b_operand, scalars };
        let calls = match &self.kind {
            Kind::Blas(functions) => functions.calls(&product)?,
            Kind::OneDnn(functions) => functions.calls(&product)?,
            #[cfg(feature = "peers")]
            Kind::Crate(which) => which.calls(&product),
        };
        calls.into_iter().map(|call| PreparedProduct::new(&self.name, call, shape)).collect()
    }
}

/// A crate that is linked with the feature `peers`.
fn built_in(which: Blas) -> Result<PeerLibrary> {
    #[cfg(feature = "peers")]
    return Ok(PeerLibrary {
        name: crates::Crate::of(which).name().into(),
        kind: Kind::Crate(crates::Crate::of(which)),
    });
    #[cfg(not(feature = "peers"))]
    Err(Error::PeerUnavailable {
        library: if which == Blas::Gemm { "the crate gemm" } else { "the crate matrixmultiply" },
        why: "this build does not include it".into(),
        advice: "build with '--features peers'",
    })
}

fn open(search: &LibrarySearch) -> Result<Library> {
    let path = env::var(search.variable).ok().filter(|path| !path.is_empty());
    let names = path.as_deref().map_or_else(|| search.files.to_vec(), |path| vec![path]);
    let mut why = String::new();
    let open = |name: &&str| {
        // SAFETY: loading a library runs its initializers. The user requested this library.
        unsafe { open_with_own_symbols(name) }.inspect_err(|error| why = error.to_string()).ok()
    };
    names.iter().find_map(open).ok_or(Error::PeerUnavailable { library: search.name, why, advice: search.advice })
}

/// Opens a library whose own symbols take precedence over global ones. MKL makes its symbols
/// global; without this, `cblas_sgemm` of BLIS calls `sgemm_` of MKL.
///
/// # Safety
/// The initialization and termination routines of the library are sound.
unsafe fn open_with_own_symbols(name: &str) -> std::result::Result<Library, libloading::Error> {
    // SAFETY: guaranteed by the caller.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    return unsafe {
        let flags = libc::RTLD_LAZY | libc::RTLD_LOCAL | libc::RTLD_DEEPBIND;
        libloading::os::unix::Library::open(Some(name), flags).map(Library::from)
    };
    // SAFETY: guaranteed by the caller.
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    unsafe {
        Library::new(name)
    }
}

/// A function that sets the number of threads, by the width of its argument.
enum Threads {
    Int32(unsafe extern "C" fn(c_int)),
    Int64(unsafe extern "C" fn(i64)),
}

impl Threads {
    fn set(&self, count: usize) {
        // SAFETY: these functions accept any number of at least 1.
        unsafe {
            match self {
                Threads::Int32(set) => set(c_int::try_from(count).unwrap_or(c_int::MAX)),
                Threads::Int64(set) => set(i64::try_from(count).unwrap_or(i64::MAX)),
            }
        }
    }
}

/// Looks up the first of `names` that a library, or one of its dependencies, exports.
///
/// # Safety
/// `F` is the type of each function of these names.
unsafe fn symbol<F: Copy>(library: &Library, names: &[impl AsRef<str>]) -> Option<F> {
    // SAFETY: guaranteed by the caller.
    names.iter().find_map(|name| unsafe { library.get::<F>(name.as_ref().as_bytes()) }.ok().map(|function| *function))
}
