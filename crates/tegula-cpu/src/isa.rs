//! Which instructions this machine has, and which of them the products use.

use std::fmt;
use std::sync::OnceLock;

use tegula_core::element::Type;
use tegula_core::error::{Error, Result};

/// Forces one instruction set: `portable`, `avx2`, `avx512`, `vnni` or `amx`.
const VARIABLE: &str = "TEGULA_CPU";

/// An instruction set that there are micro-kernels for, the slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust, vectorised by the compiler for the machine it builds for.
    Portable,
    /// AVX2 and FMA: 256-bit vectors.
    Avx2,
    /// AVX-512 F, BW and VL: 512-bit vectors.
    Avx512,
    /// VNNI besides: products of bytes, four to a lane.
    Vnni,
    /// AMX besides: tiles of bf16 and of bytes.
    Amx,
}

impl Isa {
    /// Every instruction set, the slowest first.
    pub const ALL: [Isa; 5] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Vnni, Isa::Amx];

    /// The name that `TEGULA_CPU` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Vnni => "vnni",
            Isa::Amx => "amx",
        }
    }

    /// Whether this machine has it.
    pub fn is_available(self) -> bool {
        let has = |needed: &[&str]| features().iter().filter(|(name, _)| needed.contains(name)).all(|&(_, has)| has);
        match self {
            Isa::Portable => true,
            Isa::Avx2 => cfg!(target_arch = "x86_64") && has(&["avx2", "fma"]),
            Isa::Avx512 => cfg!(target_arch = "x86_64") && has(&["avx2", "fma", "avx512f", "avx512bw", "avx512vl"]),
            Isa::Vnni => Isa::Avx512.is_available() && has(&["avx512vnni"]),
            Isa::Amx => Isa::Vnni.is_available() && has(&["amx"]),
        }
    }

    /// The one that products use: what `TEGULA_CPU` names, else the best that this machine has. Looked up once.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where `TEGULA_CPU` names one that is unknown or not on this machine.
    pub fn chosen(ty: Type) -> Result<Isa> {
        static CHOSEN: OnceLock<Result<Isa, String>> = OnceLock::new();
        let forced = || {
            std::env::var_os(VARIABLE)
                .filter(|value| !value.is_empty())
                .map(|value| value.to_string_lossy().into_owned())
        };
        let chosen =
            || choose(forced()).inspect(|isa| tracing::debug!(%isa, machine = ?features(), "instruction set chosen"));
        CHOSEN.get_or_init(chosen).clone().map_err(|name| Error::Unsupported {
            what: format!("{VARIABLE}={name}"),
            ty,
            device: format!("this CPU; it takes {}", available().map(Isa::name).collect::<Vec<_>>().join(", ")),
        })
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The instruction sets of this machine, the slowest first.
fn available() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// The named instruction set, or the best; the name back where there is none such here.
fn choose(forced: Option<String>) -> Result<Isa, String> {
    match forced {
        None => Ok(available().last().unwrap_or(Isa::Portable)),
        Some(name) => available().find(|isa| isa.name() == name).ok_or(name),
    }
}

/// The processor features that the micro-kernels ask for, and whether this machine has them.
pub fn features() -> Vec<(&'static str, bool)> {
    #[cfg(target_arch = "x86_64")]
    return vec![
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
        // Miri has none of them, and no way to ask for this one.
        ("amx", !cfg!(miri) && super::tiles::is_available()),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_machine_has_can_be_forced() {
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
