//! A product: where it ran, how fast, and how exact it is.

use std::fmt;

use serde::Serialize;
use tegula::Shape;
use tegula::element::Type;

use crate::engine::{Done, Verified};

/// The figures of a product; with `--json`, the object itself.
#[derive(Debug, Serialize)]
pub struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Type of A and B.
    pub dtype: &'static str,
    /// Type of C.
    pub result_dtype: &'static str,
    #[serde(flatten)]
    pub done: Done,
    /// `None` where nothing is multiplied.
    pub gflops: Option<f64>,
    #[serde(flatten)]
    pub verified: Option<Verified>,
}

impl Product {
    /// The figures of an m×k matrix of `dtype` times a k×n one.
    pub fn new(a: Shape, b: Shape, dtype: Type, result: Type, done: Done, verified: Option<Verified>) -> Product {
        let (m, n, k) = (a.rows, b.cols, a.cols);
        let flops = 2.0 * m as f64 * n as f64 * k as f64;
        let gflops = (flops > 0.0 && done.seconds > 0.0).then(|| flops / done.seconds / 1e9);
        Product { m, n, k, dtype: dtype.name(), result_dtype: result.name(), done, gflops, verified }
    }

    /// Why the product is not to be trusted, if it is not.
    pub fn refusal(&self) -> Option<String> {
        let verified = self.verified.as_ref()?;
        if verified.ok {
            return None;
        }
        let at = verified.worst.map_or(String::new(), |[row, col]| format!(" at row {row}, column {col}"));
        let Verified { r, bound, .. } = verified;
        let far = if r.is_finite() { format!(": r = {r:.3}{at}, more than the bound {bound}") } else { at };
        Some(format!("the product is wrong{far}; nothing was written"))
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Product { m, n, k, result_dtype, .. } = self;
        let Done { device, kernel, seconds } = &self.done;
        write!(f, "{m}×{n} {result_dtype} = {m}×{k} · {k}×{n}")?;
        match self.gflops {
            Some(gflops) => {
                let digits = if gflops < 10.0 { 2 } else { 0 };
                write!(f, " on {device} ({kernel}), {}, {gflops:.digits$} GFLOP/s", Seconds(*seconds))?;
            }
            // No kernel had a part in it.
            None => write!(f, " on {device}: nothing to multiply")?,
        }
        match &self.verified {
            Some(Verified { r, bound, .. }) => write!(f, "; r = {r:.3}, at most {bound} allowed"),
            None => Ok(()),
        }
    }
}

/// A time with three digits or so, in the unit that suits it.
struct Seconds(f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            s if s < 1e-3 => write!(f, "{:.1} µs", s * 1e6),
            s if s < 1.0 => write!(f, "{:.2} ms", s * 1e3),
            s => write!(f, "{s:.2} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(verified: Option<Verified>) -> Product {
        let done = Done { device: "cpu".into(), kernel: "avx2 f32 6x16".into(), seconds: 0.003 };
        Product::new(Shape::new(1797, 64), Shape::new(64, 1797), Type::F32, Type::F32, done, verified)
    }

    #[test]
    fn the_line_says_what_where_and_how_fast() {
        let line = product(None).to_string();
        assert_eq!(line, "1797×1797 f32 = 1797×64 · 64×1797 on cpu (avx2 f32 6x16), 3.00 ms, 138 GFLOP/s");
    }

    #[test]
    fn an_error_above_the_bound_or_nan_is_refused() {
        let verified = |r| Verified { ok: r <= 68.0, r, bound: 68.0, worst: Some([1, 2]) };
        let with = |r| product(Some(verified(r))).refusal();
        assert_eq!(with(68.0), None);
        assert!(with(68.1).unwrap().contains("row 1, column 2"));
        assert!(with(f64::NAN).is_some());
        let wrong = with(f64::INFINITY).unwrap();
        assert_eq!(wrong, "the product is wrong at row 1, column 2; nothing was written");
        let json = serde_json::to_value(product(Some(verified(f64::INFINITY)))).unwrap();
        assert_eq!((&json["ok"], &json["r"]), (&false.into(), &serde_json::Value::Null));
    }

    #[test]
    fn an_empty_product_has_no_speed() {
        let done = Done { device: "cpu".into(), kernel: "avx2 f32 6x16".into(), seconds: 0.003 };
        let empty = Product::new(Shape::new(2, 0), Shape::new(0, 3), Type::F32, Type::F32, done, None);
        assert_eq!(empty.to_string(), "2×3 f32 = 2×0 · 0×3 on cpu: nothing to multiply");
    }

    #[test]
    fn json_is_one_flat_object() {
        let verified = Verified { ok: true, r: 0.5, bound: 68.0, worst: None };
        let value = serde_json::to_value(product(Some(verified))).unwrap();
        for key in ["m", "n", "k", "dtype", "device", "kernel", "seconds", "gflops", "ok", "r", "bound", "worst"] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert!(serde_json::to_value(product(None)).unwrap().get("r").is_none());
    }
}
