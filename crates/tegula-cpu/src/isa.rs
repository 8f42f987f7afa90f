//! Detection and choice of the instruction set.

use std::fmt;
use std::sync::OnceLock;

use tegula_core::element::Type;
use tegula_core::error::{Error, Result};

/// Environment variable that forces an instruction set: `portable`, `avx2`, `avx512`, `vnni`,
/// `avx512bf16` or `amx`.
const VARIABLE: &str = "TEGULA_CPU";

/// An instruction set with micro-kernels, in order of speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust, vectorized by the compiler for the build target.
    Portable,
    /// AVX2 and FMA: 256-bit vectors.
    Avx2,
    /// AVX-512 F, BW and VL: 512-bit vectors.
    Avx512,
    /// AVX-512 with VNNI: products of bytes, four to a lane.
    Vnni,
    /// AVX-512 with VNNI and BF16: products of bf16, two to a lane.
    Avx512Bf16,
    /// AVX-512 with VNNI, BF16 and AMX: tiles of bf16 and of bytes.
    Amx,
}

impl Isa {
    /// All instruction sets, the slowest first.
    pub const ALL: [Isa; 6] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Vnni, Isa::Avx512Bf16, Isa::Amx];

    /// The name, as in `TEGULA_CPU`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Vnni => "vnni",
            Isa::Avx512Bf16 => "avx512bf16",
            Isa::Amx => "amx",
        }
    }

    /// Whether this CPU has the instruction set.
    pub fn is_available(self) -> bool {
        let has = |needed: &[&str]| features().iter().filter(|(name, _)| needed.contains(name)).all(|&(_, has)| has);
        match self {
            Isa::Portable => true,
            Isa::Avx2 => cfg!(target_arch = "x86_64") && has(&["avx2", "fma"]),
            Isa::Avx512 => cfg!(target_arch = "x86_64") && has(&["avx2", "fma", "avx512f", "avx512bw", "avx512vl"]),
            Isa::Vnni => Isa::Avx512.is_available() && has(&["avx512vnni"]),
            Isa::Avx512Bf16 => Isa::Vnni.is_available() && has(&["avx512bf16"]),
            Isa::Amx => Isa::Avx512Bf16.is_available() && has(&["amx"]),
        }
    }

    /// The instruction set of products: by `TEGULA_CPU`, else the fastest of this CPU. Chosen once.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where `TEGULA_CPU` is unknown or not available on this CPU.
    #[inline]
    pub fn chosen(ty: Type) -> Result<Isa> {
        static CHOSEN: OnceLock<Result<Isa, String>> = OnceLock::new();
        match CHOSEN.get_or_init(choose_once) {
            Ok(isa) => Ok(*isa),
            Err(name) => Err(not_available(name, ty)),
        }
    }
}

/// The choice of [`Isa::chosen`]: `Err` with the name in `TEGULA_CPU` where it is not available.
#[cold]
fn choose_once() -> Result<Isa, String> {
    let forced =
        std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned());
    choose(forced).inspect(|isa| tracing::debug!(%isa, cpu_features = ?features(), "instruction set chosen"))
}

#[cold]
fn not_available(name: &str, ty: Type) -> Error {
    let names: Vec<_> = available().map(Isa::name).collect();
    let device = format!("this CPU; it takes {}", names.join(", "));
    Error::Unsupported { what: format!("{VARIABLE}={name}"), ty, device }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The instruction sets of this CPU, the slowest first.
fn available() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// The named instruction set, else the fastest; `Err` with the name where it is not available.
fn choose(forced: Option<String>) -> Result<Isa, String> {
    match forced {
        None => Ok(available().last().unwrap_or(Isa::Portable)),
        Some(name) => available().find(|isa| isa.name() == name).ok_or(name),
    }
}

/// The CPU features that micro-kernels need, and whether this CPU has them.
pub fn features() -> Vec<(&'static str, bool)> {
    #[cfg(target_arch = "x86_64")]
    return vec![
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
        // Miri has none of these features, and cannot detect AMX.
        ("amx", !cfg!(miri) && super::amx_detect::is_available()),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forced_instruction_set_must_be_available() {
        assert_eq!(choose(Some("portable".into())), Ok(Isa::Portable));
        assert_eq!(choose(Some("avx1024".into())), Err("avx1024".into()));
        assert_eq!(choose(Some("".into())), Err("".into()));
        for isa in Isa::ALL {
            let want = if isa.is_available() { Ok(isa) } else { Err(isa.name().into()) };
            assert_eq!(choose(Some(isa.name().into())), want);
            assert!(!isa.is_available() || choose(None) >= Ok(isa));
        }
    }
}
