//! Shapes of products to time: lists and ranges of sizes, files of shapes, and random shapes.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use tegula::tune::data::uniform;

use crate::failure::{Failure, Result};

/// Maximum sizes of a list, or random shapes; more are taken for a typing error.
pub const MAX_SHAPES: usize = 100_000;

/// A list of sizes: `512,1024:4096:1024` is 512, 1024, 2048, 3072 and 4096.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    sizes: Vec<usize>,
    text: String,
}

impl Sizes {
    /// The list as given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            let numbers = part.split(':').map(size).collect::<Result<Vec<_>, _>>()?;
            match numbers[..] {
                [size] => sizes.push(size),
                [start, end, step] => sizes.extend(range(start, end, step, MAX_SHAPES - sizes.len().min(MAX_SHAPES))?),
                _ => return Err(format!("'{part}': neither a size nor a range START:END:STEP")),
            }
            if sizes.len() > MAX_SHAPES {
                return Err(format!("more than {MAX_SHAPES} sizes"));
            }
        }
        Ok(Sizes { sizes, text: text.into() })
    }
}

/// The sizes from `start` to `end` inclusive.
fn range(start: usize, end: usize, step: usize, room: usize) -> Result<impl Iterator<Item = usize>, String> {
    if start > end {
        return Err(format!("range {start}:{end}:{step}: START exceeds END"));
    }
    if (end - start) / step >= room {
        return Err(format!("range {start}:{end}:{step}: more than {MAX_SHAPES} sizes"));
    }
    Ok((start..=end).step_by(step))
}

/// Parses a size, from 1 to the maximum of a matrix.
fn size(text: &str) -> Result<usize, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse::<usize>().ok().filter(|size| *size > 0 && isize::try_from(*size).is_ok());
    match number {
        Some(size) if digits => Ok(size),
        None if digits && text.bytes().any(|byte| byte != b'0') => Err(format!("{text} is too large")),
        _ => Err(format!("'{text}': not a size; give a whole number of at least 1, or a range START:END:STEP")),
    }
}

/// The shape of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub batch: usize,
}

/// Zips lists of sizes into shapes. A list of one applies to all; n and k default to m, batch to 1.
pub fn zipped(m: &Sizes, n: Option<&Sizes>, k: Option<&Sizes>, batch: Option<&Sizes>) -> Result<Vec<Shape>> {
    let lists = [("--m", Some(m)), ("--n", n), ("--k", k), ("--batch", batch)];
    let given = || lists.iter().filter_map(|(name, list)| list.map(|list| (name, list.sizes.len())));
    let count = given().map(|(_, len)| len).max().unwrap_or(1);
    if let Some((name, len)) = given().find(|(_, len)| *len != 1 && *len != count) {
        let (longest, _) = given().find(|(_, len)| *len == count).unwrap_or((&"--m", count));
        return Err(Failure::Usage(format!(
            "{name} has {len} sizes and {longest} has {count}: give the same number, or one for all"
        )));
    }
    let at = |list: Option<&Sizes>, i: usize| list.and_then(|list| list.sizes.get(i).or(list.sizes.first())).copied();
    let shape = |i| {
        let m = at(Some(m), i)?;
        Some(Shape { m, n: at(n, i).unwrap_or(m), k: at(k, i).unwrap_or(m), batch: at(batch, i).unwrap_or(1) })
    };
    Ok((0..count).filter_map(shape).collect())
}

/// Reads shapes from a file, one per line: `m n k`, `m n k batch`, `MxNxK` or `MxNxKxBATCH`; `#`
/// starts a comment.
pub fn file(path: &Path) -> Result<Vec<Shape>> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| Failure::new(format!("{name}: cannot be read: {error}")))?;
    let mut shapes = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let wrong = |why| Failure::new(format!("{name}:{}: {why}", number + 1));
            shapes.push(shape(line).map_err(wrong)?);
        }
    }
    if shapes.is_empty() {
        return Err(Failure::new(format!("{name}: no shapes; write one per line, such as 1024 1024 64")));
    }
    Ok(shapes)
}

/// `count` random shapes with sizes from `from` to `to`, log-uniformly distributed.
pub fn random(count: usize, [from, to]: [u32; 2], seed: u64) -> Vec<Shape> {
    let (low, high) = (f64::from(from).ln(), (f64::from(to) + 1.0).ln());
    let size = |place| (low + uniform(seed, place) * (high - low)).exp().clamp(from.into(), to.into()) as usize;
    let shape = |i| Shape { m: size(3 * i), n: size(3 * i + 1), k: size(3 * i + 2), batch: 1 };
    (0..count as u64).map(shape).collect()
}

fn shape(line: &str) -> Result<Shape, String> {
    let parts = line.split(|c: char| c.is_whitespace() || ",xX×".contains(c)).filter(|part| !part.is_empty());
    let sizes = parts.map(size).collect::<Result<Vec<_>, _>>()?;
    match sizes[..] {
        [m, n, k] => Ok(Shape { m, n, k, batch: 1 }),
        [m, n, k, batch] => Ok(Shape { m, n, k, batch }),
        _ => Err(format!("'{line}': not a shape; write m n k or m n k batch")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<usize> {
        text.parse::<Sizes>().unwrap().sizes
    }

    fn wrong(text: &str) -> String {
        text.parse::<Sizes>().unwrap_err()
    }

    #[test]
    fn lists_and_ranges_combine() {
        assert_eq!(sizes("7"), [7]);
        assert_eq!(sizes("1024:4096:1024"), [1024, 2048, 3072, 4096]);
        assert_eq!(sizes("512,1024:4096:1024,5"), [512, 1024, 2048, 3072, 4096, 5]);
        assert_eq!((sizes("1:10:4"), sizes("3:3:9")), (vec![1, 5, 9], vec![3]));
    }

    #[test]
    fn invalid_sizes_are_rejected() {
        for text in ["", "0", "-1", "x", "1,", ",1", "1:2", "1:2:3:4", "1:2:0", "1 2", "+1", "1.5"] {
            assert!(
                wrong(text).contains("not a size") || wrong(text).contains("neither a size"),
                "{text}: {}",
                wrong(text)
            );
        }
        assert!(wrong("9:1:1").contains("START exceeds END"));
        assert_eq!(wrong("99999999999999999999"), "99999999999999999999 is too large");
        assert!(wrong("1:999999999:1").contains("more than 100000"));
        assert!(wrong("1:60000:1,1:60000:1").contains("more than 100000"));
    }

    #[test]
    fn lists_are_zipped() {
        let list = |text: &str| text.parse::<Sizes>().unwrap();
        let shape = |m, n, k, batch| Shape { m, n, k, batch };
        let cubes = zipped(&list("1:2:1"), None, None, None).unwrap();
        assert_eq!(cubes, [shape(1, 1, 1, 1), shape(2, 2, 2, 1)]);
        let mixed = zipped(&list("8"), Some(&list("1,2")), Some(&list("5,6")), Some(&list("3"))).unwrap();
        assert_eq!(mixed, [shape(8, 1, 5, 3), shape(8, 2, 6, 3)]);
        let why = zipped(&list("1,2,3"), Some(&list("1,2")), None, None).unwrap_err().to_string();
        assert!(why.starts_with("--n has 2 sizes and --m has 3"), "{why}");
    }

    #[test]
    fn random_sizes_are_log_uniform() {
        let shapes = random(2000, [64, 8192], 7);
        assert_eq!(shapes, random(2000, [64, 8192], 7));
        assert_ne!(shapes, random(2000, [64, 8192], 8));
        let sizes: Vec<_> = shapes.iter().flat_map(|shape| [shape.m, shape.n, shape.k]).collect();
        assert!(sizes.iter().all(|size| (64..=8192).contains(size)) && shapes.iter().all(|shape| shape.batch == 1));
        // Seven doublings, a seventh of the sizes in each.
        for doubling in 6..13 {
            let share = sizes.iter().filter(|size| size.ilog2() == doubling).count() as f64 / 6000.0;
            assert!((share - 1.0 / 7.0).abs() < 0.02, "{doubling}: {share}");
        }
        let dice: Vec<_> = random(50, [1, 2], 1).iter().map(|shape| shape.m).collect();
        assert!(dice.contains(&1) && dice.contains(&2), "both ends occur: {dice:?}");
        assert_eq!(random(1, [5, 5], 1), [Shape { m: 5, n: 5, k: 5, batch: 1 }]);
        assert!(random(3, [u32::MAX, u32::MAX], 0).iter().all(|shape| shape.m == u32::MAX as usize));
    }

    #[test]
    fn shape_file_has_a_shape_per_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("shapes.txt");
        let put = |text: &str| fs::write(&path, text).unwrap();
        put("# rows columns depth\n1 2 3\n\n 4x5x6x7 # a batch\n8, 9, 10\r\n");
        let found: Vec<_> = file(&path).unwrap().iter().map(|s| [s.m, s.n, s.k, s.batch]).collect();
        assert_eq!(found, [[1, 2, 3, 1], [4, 5, 6, 7], [8, 9, 10, 1]]);
        for (text, says) in [
            ("1 2 3\n4 5\n", "shapes.txt:2: '4 5': not a shape"),
            ("\n\n1 2 0", "shapes.txt:3: '0': not a size"),
            ("1 2 3 4 5", "shapes.txt:1: '1 2 3 4 5': not a shape"),
            ("# nothing\n", "shapes.txt: no shapes"),
        ] {
            put(text);
            let why = file(&path).unwrap_err().to_string();
            assert!(why.contains(says), "{why}");
        }
        fs::write(&path, b"1 2 \xff").unwrap();
        assert!(file(&path).unwrap_err().to_string().contains("cannot be read"));
    }
}
