//! The report of `tegula mul`: device, speed and error of a product.

use std::fmt;

use serde::Serialize;
use tegula::element::{Element, Scalar};
use tegula::epilogue::Epilogue;
use tegula::nd::display;

use super::{gelu_form, text};
use crate::engine::{Done, Operands, Verified};

/// The figures of a product: the object of `--json`.
#[derive(Debug, Serialize)]
pub struct Product {
    /// Rows and columns of each matrix of C; 1 where the operand is a vector.
    pub m: usize,
    pub n: usize,
    pub k: usize,
    /// Matrices in C.
    pub batch: usize,
    /// Extents of A, B and C, transposed as the product takes them.
    pub shapes: [Vec<usize>; 3],
    /// Whether accumulators are integers, which are exact or wrong.
    #[serde(skip)]
    exact: bool,
    /// Type of A and B.
    pub dtype: &'static str,
    /// Type of C.
    pub result_dtype: &'static str,
    /// The accuracy mode, which determines the units of r and its bound.
    pub accuracy: &'static str,
    /// The epilogue, such as `none` or `bias+gelu`.
    #[serde(serialize_with = "text")]
    pub epilogue: Epilogue,
    /// `tanh` where the epilogue applies GELU.
    pub gelu_form: Option<&'static str>,
    #[serde(flatten)]
    pub done: Done,
    /// `None` for an empty product.
    pub gflops: Option<f64>,
    #[serde(flatten)]
    pub verified: Option<Verified>,
}

impl Product {
    /// The figures of a product whose result has shape `c`.
    pub fn new<T: Element>(operands: &Operands<'_, T>, c: &[usize], done: Done, verified: Option<Verified>) -> Product {
        let (a, b) = (operands.a.shape(), operands.b.shape());
        let m = if a.len() < 2 { 1 } else { a[a.len() - 2] };
        let n = if b.len() < 2 { 1 } else { b[b.len() - 1] };
        let k = a.last().copied().unwrap_or(0);
        // C has m and n, except where an operand is a vector; the rest is its batch.
        let own = usize::from(a.len() > 1) + usize::from(b.len() > 1);
        let batch = c[..c.len().saturating_sub(own)].iter().fold(1usize, |batch, &extent| batch.saturating_mul(extent));
        let flops = 2.0 * batch as f64 * m as f64 * n as f64 * k as f64;
        let gflops = (flops > 0.0 && done.seconds > 0.0).then(|| flops / done.seconds / 1e9);
        let shapes = [a.to_vec(), b.to_vec(), c.to_vec()];
        let (dtype, result_dtype) = (T::TYPE.name(), <T::Out as Scalar>::TYPE.name());
        let exact = T::TYPE.is_int();
        let (accuracy, epilogue) = (operands.accuracy.name(), operands.epilogue());
        let gelu_form = gelu_form(&epilogue);
        Product {
            m,
            n,
            k,
            batch,
            shapes,
            exact,
            dtype,
            result_dtype,
            accuracy,
            epilogue,
            gelu_form,
            done,
            gflops,
            verified,
        }
    }

    /// The reason why the product failed verification, if it did.
    pub fn refusal(&self) -> Option<String> {
        let verified = self.verified.as_ref()?;
        if verified.ok {
            return None;
        }
        let at = verified.worst.as_deref().map_or(String::new(), place);
        let Verified { r, bound, overflows, .. } = *verified;
        if overflows > 0 {
            let elements = if overflows == 1 { "1 element".into() } else { format!("{overflows} elements") };
            return Some(format!(
                "partial sums overflow in {elements}{at}, but the exact product does not; scale A or B down; nothing was written"
            ));
        }
        let error = if r.is_finite() { format!(": r = {r:.3}{at}, above the bound {bound}") } else { at };
        Some(format!("the product is wrong{error}; nothing was written"))
    }
}

/// The position of an element: ` at row 1, column 2`, or for other ranks ` at (0, 1, 2)`.
fn place(index: &[usize]) -> String {
    match index {
        [row, col] => format!(" at row {row}, column {col}"),
        _ => format!(" at ({})", index.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Product { result_dtype, .. } = self;
        let [a, b, c] = self.shapes.each_ref().map(|shape| display(shape));
        let Done { device, kernel, seconds } = &self.done;
        write!(f, "{c} {result_dtype} = {a} · {b}")?;
        if !self.epilogue.is_none() {
            write!(f, " with {}", self.epilogue)?;
        }
        match self.gflops {
            Some(gflops) => write!(f, " on {device} ({kernel}), {}, {}", Seconds(*seconds), Rate(gflops))?,
            // No kernel ran.
            None => write!(f, " on {device}: nothing to multiply")?,
        }
        match &self.verified {
            Some(Verified { ok: true, .. }) if self.exact => f.write_str("; exact"),
            Some(Verified { r, bound, .. }) => write!(f, "; r = {r:.3}, bound {bound}"),
            None => Ok(()),
        }
    }
}

/// A time with about three digits and a unit prefix.
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

/// A rate with about three digits and a unit prefix.
struct Rate(f64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            r if r < 0.1 => write!(f, "{:.1} MFLOP/s", r * 1e3),
            r if r < 10.0 => write!(f, "{r:.2} GFLOP/s"),
            r if r < 10_000.0 => write!(f, "{r:.0} GFLOP/s"),
            r => write!(f, "{:.1} TFLOP/s", r / 1e3),
        }
    }
}

#[cfg(test)]
mod tests {
    use tegula::Accuracy;
    use tegula::nd::{NdArray, NdEpilogueOperands, product_shape};

    use super::*;
    use crate::args::DeviceChoice;

    fn shaped(a: &[usize], b: &[usize], verified: Option<Verified>) -> Product {
        let done = Done { device: "cpu".into(), kernel: "avx2 f32 6x16".into(), seconds: 0.003 };
        let (a, b) = (NdArray::<f32>::zeros(a).unwrap(), NdArray::zeros(b).unwrap());
        let c = product_shape(a.shape(), b.shape()).unwrap();
        let (device, accuracy) = (DeviceChoice::Cpu, Accuracy::Full);
        let finish = NdEpilogueOperands::default();
        let operands = Operands {
            device,
            alpha: 1.0,
            a: a.view(),
            b: b.view(),
            beta: 0.0,
            finish,
            accuracy,
            batch_invariant: false,
        };
        Product::new(&operands, &c, done, verified)
    }

    fn product(verified: Option<Verified>) -> Product {
        shaped(&[1797, 64], &[64, 1797], verified)
    }

    #[test]
    fn stacks_and_vectors_have_sizes() {
        let sizes = |a: &[usize], b: &[usize]| {
            let product = shaped(a, b, None);
            [product.batch, product.m, product.n, product.k]
        };
        assert_eq!(sizes(&[5, 1, 3, 4], &[2, 4, 6]), [10, 3, 6, 4]);
        assert_eq!(sizes(&[4], &[2, 4, 6]), [2, 1, 6, 4]);
        assert_eq!(sizes(&[3, 4], &[4]), [1, 3, 1, 4]);
        assert_eq!(sizes(&[4], &[4]), [1, 1, 1, 4]);
        let line = shaped(&[4], &[4], None).to_string();
        assert!(line.starts_with("() f32 = 4 · 4 on cpu"), "{line}");
    }

    #[test]
    fn line_names_shapes_device_and_speed() {
        let line = product(None).to_string();
        assert_eq!(line, "1797×1797 f32 = 1797×64 · 64×1797 on cpu (avx2 f32 6x16), 3.00 ms, 138 GFLOP/s");
    }

    #[test]
    fn error_above_the_bound_or_nan_is_refused() {
        let verified = |r| Verified { ok: r <= 68.0, r, bound: 68.0, worst: Some(vec![1, 2]), overflows: 0 };
        let with = |r| product(Some(verified(r))).refusal();
        assert_eq!(with(68.0), None);
        assert!(with(68.1).unwrap().contains("row 1, column 2"));
        assert!(with(f64::NAN).is_some());
        let wrong = with(f64::INFINITY).unwrap();
        assert_eq!(wrong, "the product is wrong at row 1, column 2; nothing was written");
        let overflowed =
            |overflows| product(Some(Verified { overflows, ..verified(f64::INFINITY) })).refusal().unwrap();
        assert_eq!(
            overflowed(1),
            "partial sums overflow in 1 element at row 1, column 2, but the exact product does not; scale A or B down; nothing \
             was written"
        );
        assert!(overflowed(7).contains("in 7 elements at"));
        let json = serde_json::to_value(product(Some(verified(f64::INFINITY)))).unwrap();
        assert_eq!((&json["ok"], &json["r"]), (&false.into(), &serde_json::Value::Null));
    }

    #[test]
    fn empty_product_has_no_speed() {
        let empty = shaped(&[2, 0], &[0, 3], None);
        assert_eq!(empty.to_string(), "2×3 f32 = 2×0 · 0×3 on cpu: nothing to multiply");
    }

    #[test]
    fn json_is_a_flat_object() {
        let verified = Verified { ok: true, r: 0.5, bound: 68.0, worst: None, overflows: 0 };
        let value = serde_json::to_value(product(Some(verified))).unwrap();
        for key in [
            "m", "n", "k", "dtype", "accuracy", "epilogue", "device", "kernel", "seconds", "gflops", "ok", "r",
            "bound", "worst",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert!(serde_json::to_value(product(None)).unwrap().get("r").is_none());
    }
}
