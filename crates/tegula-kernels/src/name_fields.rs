//! Configurations in kernel names: `128x256x64_consumers2_stages4_cluster2x1_pingpong`.
//!
//! A configuration is a tile and named fields, in any order. A field with its default value is left
//! out. Earlier names were numbers without field names; [`upgrade_legacy_name`] converts
//! them.

use std::fmt::{self, Write};

use tegula_core::element::Type;

/// The fields of a configuration, parsed.
pub(crate) struct NameFields<'a> {
    tile: Vec<u32>,
    fields: Vec<(&'a str, Vec<u32>)>,
}

impl<'a> NameFields<'a> {
    /// Parses a tile and fields; `None` for other syntax and for a repeated field.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split('_');
        let tile = numbers(words.next()?)?;
        let mut fields: Vec<(&str, Vec<u32>)> = Vec::new();
        for word in words {
            let (name, values) = word.split_at(word.find(|c: char| c.is_ascii_digit()).unwrap_or(word.len()));
            let is_repeated = fields.iter().any(|(known, _)| *known == name);
            if name.is_empty() || is_repeated {
                return None;
            }
            fields.push((name, if values.is_empty() { Vec::new() } else { numbers(values)? }));
        }
        Some(NameFields { tile, fields })
    }

    /// The extents of the tile.
    pub fn tile<const N: usize>(&self) -> Option<[u32; N]> {
        self.tile.as_slice().try_into().ok()
    }

    /// Removes a field: its values, or `default` where it is absent.
    pub fn take<const N: usize>(&mut self, name: &str, default: Option<[u32; N]>) -> Option<[u32; N]> {
        match self.fields.iter().position(|(known, _)| *known == name) {
            Some(at) => self.fields.swap_remove(at).1.try_into().ok(),
            None => default,
        }
    }

    /// Removes a field without values: whether it was present.
    pub fn take_flag(&mut self, name: &str) -> Option<bool> {
        match self.fields.iter().position(|(known, _)| *known == name) {
            Some(at) => self.fields.swap_remove(at).1.is_empty().then_some(true),
            None => Some(false),
        }
    }

    /// `value` if no field is left.
    pub fn finish<T>(self, value: T) -> Option<T> {
        self.fields.is_empty().then_some(value)
    }
}

/// Numbers between `x`.
fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split('x').map(|number| number.parse().ok()).collect()
}

/// Writes a field unless its values are the default.
pub(crate) fn write_field<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    values: [u32; N],
    default: Option<[u32; N]>,
) -> fmt::Result {
    if Some(values) == default {
        return Ok(());
    }
    write!(f, "_{name}")?;
    for (i, value) in values.iter().enumerate() {
        if i > 0 {
            f.write_char('x')?;
        }
        write!(f, "{value}")?;
    }
    Ok(())
}

/// Converts an earlier name of a kernel or recipe to the current one; `None` for any other name.
///
/// Earlier names are `hopper_128x256x64_2_4_1` and
/// `mma_f16_128x256x32_64x64_16x8_4_1_1_rcr_v110_parts_4`.
pub fn upgrade_legacy_name(old: &str) -> Option<String> {
    match old {
        "sum" => return Some("reduce".into()),
        "mend" => return Some("fixup".into()),
        _ => {}
    }
    if let Some((kernel, options)) = old.split_once(':') {
        return upgrade_legacy_name(kernel).map(|kernel| format!("{kernel}:{options}"));
    }
    let words: Vec<&str> = old.split('_').collect();
    let typed = words.get(1).is_some_and(|word| Type::ALL.iter().any(|ty| ty.name() == *word));
    let tile = 1 + usize::from(typed);
    let (fields, defaults): (&[&str], &[&str]) = match words[0] {
        "hopper" => (&["consumers", "stages", "cluster"], &["", "", "1"]),
        "vector" => (&["threads", "load"], &["", ""]),
        "register" | "mma" | "tf32" | "limbs" | "dmma16x16" | "dmma16x8" | "dmma16x4" | "dmma8x4" => {
            (&["warp", "thread", "stages", "slices", "blocks"], &["", "", "", "1", "1"])
        }
        _ => return None,
    };
    let values = words.get(tile + 1..tile + 1 + fields.len())?;
    if !values.iter().all(|value| numbers(value).is_some()) {
        return None;
    }
    let mut name = words[..=tile].join("_");
    for ((field, value), default) in fields.iter().zip(values).zip(defaults) {
        if value != default {
            let second = if *field == "cluster" && !value.contains('x') { "x1" } else { "" };
            name.push_str(&format!("_{field}{value}{second}"));
        }
    }
    let is_numbered = |word: &str, mark: &str| word.strip_prefix(mark).is_some_and(|rest| rest.parse::<u32>().is_ok());
    for word in &words[tile + 1 + fields.len()..] {
        match *word {
            "pp" => name.push_str("_pingpong"),
            "parts" => name.push_str("_splitk"),
            "balanced" => name.push_str("_streamk"),
            "pa" | "pb" | "pab" => name.push_str(&format!("_{}", word.replace('p', "pack"))),
            word if words[0] == "hopper" && is_numbered(word, "k") => name.push_str(&format!("_cluster{word}")),
            word if words[0] == "hopper" && is_numbered(word, "g") => {
                name.push_str(&format!("_raster{}", &word[1..]));
            }
            word => name.push_str(&format!("_{word}")),
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::GemmKernel;

    #[test]
    fn upgrade_legacy_name_converts_earlier_names_only() {
        for (old, new) in [
            ("hopper_128x256x64_2_4_1", "hopper_128x256x64_consumers2_stages4"),
            ("hopper_128x256x64_2_4_2x1_pp", "hopper_128x256x64_consumers2_stages4_cluster2x1_pingpong"),
            ("hopper_64x64x64_1_8_2_k4_g16", "hopper_64x64x64_consumers1_stages8_cluster2x1_clusterk4_raster16"),
            ("mma_128x256x32_64x64_16x8_4_1_1", "mma_128x256x32_warp64x64_thread16x8_stages4"),
            ("register_64x128x8_32x64_8x8_4_2_3", "register_64x128x8_warp32x64_thread8x8_stages4_slices2_blocks3"),
            ("vector_16x4_32x8_8", "vector_16x4_threads32x8_load8"),
        ] {
            assert_eq!(upgrade_legacy_name(old).as_deref(), Some(new));
            assert_eq!(upgrade_legacy_name(new), None, "{new} is a current name");
            let ty = if old.starts_with("register") || old.starts_with("vector") { Type::F32 } else { Type::F16 };
            assert_eq!(GemmKernel::named(old, ty).unwrap(), GemmKernel::named(new, ty).unwrap());
        }
        let old = "hopper_64x64x64_1_2_1:4:pab";
        assert_eq!(upgrade_legacy_name(old).as_deref(), Some("hopper_64x64x64_consumers1_stages2:4:pab"));
        assert_eq!(upgrade_legacy_name("mend").as_deref(), Some("fixup"));
        let old = "hopper_f16_128x128x64_2_5_1_k2_ccr_e_parts_4_swapped_pab";
        let new = "hopper_f16_128x128x64_consumers2_stages5_clusterk2_ccr_e_splitk_4_swapped_packab";
        assert_eq!(upgrade_legacy_name(old).as_deref(), Some(new));
        for other in ["", "tiled_f32_32", "hopper", "hopper_", "hopper_f16", "vector_16x4_32x8", "K6"] {
            assert_eq!(upgrade_legacy_name(other), None, "{other}");
        }
    }

    #[test]
    fn fields_have_any_order_and_each_at_most_once() {
        let parse = |text| {
            let mut fields = NameFields::parse(text)?;
            let values = (fields.tile::<2>()?, fields.take("a", Some([1]))?, fields.take::<2>("b", None)?);
            let flag = fields.take_flag("c")?;
            fields.finish((values, flag))
        };
        assert_eq!(parse("8x4_b3x2"), Some((([8, 4], [1], [3, 2]), false)));
        assert_eq!(parse("8x4_c_b3x2_a7"), Some((([8, 4], [7], [3, 2]), true)));
        for wrong in
            ["", "8x4", "8x4_b3", "8x4_b3x2_b3x2", "8x4_b3x2_d", "8x4_b3x2_c1", "8_b3x2", "8x4_b3x2_", "8x4_b3xx"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
