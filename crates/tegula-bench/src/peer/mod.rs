//! Libraries of other people that multiply on this processor, to be measured against.
//!
//! - `blas`: those with the interface of BLAS, opened while the program runs;
//! - `onednn`: oneDNN, likewise;
//! - `crates`: crates for Rust, where the feature `peers` is on.
//!
//! Each makes a product `ready` once, with all that it can do beforehand, and then makes it again and again: [`Ready`].

mod blas;
#[cfg(feature = "peers")]
mod crates;
mod onednn;
mod ready;
#[cfg(test)]
mod tests;
mod version;

use std::ffi::c_int;
use std::{env, fmt};

use libloading::Library;
pub use ready::Ready;
use ready::{Operand, Product};
use tegula::element::{Element, Scalar};
use tegula::error::{Error, Result};
use tegula::matrix::{Shape, View, check_product};

/// A library that may be here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blas {
    /// Intel's.
    Mkl,
    /// OpenBLAS, also as NumPy and SciPy bring it.
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

/// What looking for a library takes.
struct Place {
    name: &'static str,
    variable: &'static str,
    files: &'static [&'static str],
    advice: &'static str,
}

impl Blas {
    /// Where it may be; `None` of a crate.
    const fn place(self) -> Option<Place> {
        Some(match self {
            Blas::Mkl => Place {
                name: "MKL",
                variable: "TEGULA_MKL",
                files: &["libmkl_rt.so.2", "libmkl_rt.so", "libmkl_rt.so.3"],
                advice: "let TEGULA_MKL name its libmkl_rt (the PyPI package mkl has it)",
            },
            Blas::OpenBlas => Place {
                name: "OpenBLAS",
                variable: "TEGULA_OPENBLAS",
                files: &["libopenblas.so.0", "libopenblas.so"],
                advice: "let TEGULA_OPENBLAS name it (Debian's libopenblas0 and the PyPI package scipy-openblas64 have it)",
            },
            Blas::Blis => Place {
                name: "BLIS",
                variable: "TEGULA_BLIS",
                files: &["libblis.so.4", "libblis.so"],
                advice: "let TEGULA_BLIS name it (Debian's libblis4 has it)",
            },
            Blas::OneDnn => Place {
                name: "oneDNN",
                variable: "TEGULA_ONEDNN",
                files: &["libdnnl.so.3", "libdnnl.so"],
                advice: "let TEGULA_ONEDNN name a libdnnl built for OpenMP (the PyPI package onednn-cpu-gomp has it)",
            },
            Blas::Gemm | Blas::Matrixmultiply => return None,
        })
    }
}

/// A library that can be used.
pub struct Peer {
    name: String,
    kind: Kind,
}

enum Kind {
    Blas(blas::Functions),
    OneDnn(onednn::Functions),
    #[cfg(feature = "peers")]
    Crate(crates::Crate),
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Peer {
    /// Opens a library: what its environment variable names, or what the system finds.
    ///
    /// # Errors
    /// [`Error::NoPeer`] where it is not here, or lacks what it should have.
    pub fn open(which: Blas) -> Result<Peer> {
        let Some(place) = which.place() else { return built_in(which) };
        // It is never closed: its threads may outlast the last call.
        let library: &'static Library = Box::leak(Box::new(open(&place)?));
        let refused = |why: &str| Error::NoPeer { library: place.name, why: why.into(), advice: place.advice };
        // SAFETY: it is the library that it was asked for as.
        let (kind, version) = unsafe {
            let version = version::of(library, which);
            let kind = if which == Blas::OneDnn {
                onednn::Functions::of(library).map(Kind::OneDnn)
            } else {
                blas::Functions::of(library, which).map(Kind::Blas)
            };
            (kind.map_err(refused)?, version)
        };
        let name = version.map_or_else(|| place.name.into(), |version| format!("{} {version}", place.name));
        Ok(Peer { name, kind })
    }

    /// Its name and, where it tells, its version.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many threads it may use from now on, for products that are made ready then.
    pub fn set_threads(&self, count: usize) {
        match &self.kind {
            Kind::Blas(functions) => functions.threads.set(count),
            Kind::OneDnn(functions) => functions.threads.set(count),
            // They are told with each product.
            #[cfg(feature = "peers")]
            Kind::Crate(_) => {}
        }
    }

    /// Makes C ← alpha·A·B + beta·C ready, in each way that the library has; none where it has no such product. C is row-major, and as
    /// [`Ready::set`] leaves it.
    ///
    /// # Errors
    /// [`Error::Shape`] where the shapes do not make a product, [`Error::OutOfMemory`].
    pub fn ready<'a, T: Element>(
        &'a self,
        alpha: T::Acc,
        a: View<'a, T>,
        b: View<'a, T>,
        beta: T::Acc,
    ) -> Result<Vec<Ready<'a, T>>> {
        let (Some(from), Some(to)) = (Operand::of(a), Operand::of(b)) else { return Ok(Vec::new()) };
        let shape = Shape { batches: a.shape().batches, rows: a.shape().rows, cols: b.shape().cols };
        check_product(a.shape(), b.shape(), shape)?;
        let factors = [alpha.to_bits(), beta.to_bits()];
        let product = Product { ty: T::TYPE, shape, k: a.shape().cols, a: from, b: to, factors };
        let calls = match &self.kind {
            Kind::Blas(functions) => functions.calls(&product)?,
            Kind::OneDnn(functions) => functions.calls(&product)?,
            #[cfg(feature = "peers")]
            Kind::Crate(which) => which.calls(&product),
        };
        calls.into_iter().map(|call| Ready::new(&self.name, call, shape)).collect()
    }
}

/// A crate that is part of the program, or not.
fn built_in(which: Blas) -> Result<Peer> {
    #[cfg(feature = "peers")]
    return Ok(Peer { name: crates::Crate::of(which).name().into(), kind: Kind::Crate(crates::Crate::of(which)) });
    #[cfg(not(feature = "peers"))]
    Err(Error::NoPeer {
        library: if which == Blas::Gemm { "the crate gemm" } else { "the crate matrixmultiply" },
        why: "this program was built without it".into(),
        advice: "build with '--features peers'",
    })
}

fn open(place: &Place) -> Result<Library> {
    let named = env::var(place.variable).ok().filter(|name| !name.is_empty());
    let names = named.as_deref().map_or_else(|| place.files.to_vec(), |named| vec![named]);
    let mut why = String::new();
    let open = |name: &&str| {
        // SAFETY: opening a library runs its initialisers. It is one that the user asked for by name.
        unsafe { Library::new(*name) }.inspect_err(|error| why = error.to_string()).ok()
    };
    names.iter().find_map(open).ok_or(Error::NoPeer { library: place.name, why, advice: place.advice })
}

/// A function that sets how many threads there are.
enum Threads {
    Narrow(unsafe extern "C" fn(c_int)),
    Wide(unsafe extern "C" fn(i64)),
}

impl Threads {
    fn set(&self, count: usize) {
        // SAFETY: these functions take any number from 1 on.
        unsafe {
            match self {
                Threads::Narrow(set) => set(c_int::try_from(count).unwrap_or(c_int::MAX)),
                Threads::Wide(set) => set(i64::try_from(count).unwrap_or(i64::MAX)),
            }
        }
    }
}

/// The first function there is of these names, in a library or in those that it came with.
///
/// # Safety
/// `F` is the type of each function of these names.
unsafe fn symbol<F: Copy>(library: &Library, names: &[impl AsRef<str>]) -> Option<F> {
    // SAFETY: the caller's promise.
    names.iter().find_map(|name| unsafe { library.get::<F>(name.as_ref().as_bytes()) }.ok().map(|function| *function))
}
