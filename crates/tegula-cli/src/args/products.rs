//! Products that `bench` and `tune` time: shapes, types and layouts.

use std::fmt;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use tegula::Accuracy;
use tegula::element::Type;

use super::{accuracy_parser, type_parser};
use crate::failure::Failure;
use crate::shapes::{self, Shape, Sizes};

/// Options of products: every type in every layout in every shape.
#[derive(Debug, Args)]
pub struct ProductsArgs {
    /// Rows of A and C [default: 512,1024,2048]
    #[arg(long, value_name = "SIZES", conflicts_with = "shapes")]
    pub m: Option<Sizes>,
    /// Columns of B and C [default: m]
    #[arg(long, value_name = "SIZES", conflicts_with = "shapes")]
    pub n: Option<Sizes>,
    /// Columns of A, rows of B [default: m]
    #[arg(long, value_name = "SIZES", conflicts_with = "shapes")]
    pub k: Option<Sizes>,
    /// Matrices in the batch [default: 1]
    #[arg(long, value_name = "SIZES", conflicts_with = "shapes")]
    pub batch: Option<Sizes>,
    /// Read m, n, k and batch from a file, one product per line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub shapes: Option<PathBuf>,
    /// Types of A and B
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f32", value_parser = type_parser())]
    pub dtype: Vec<Type>,
    /// Layouts of A and B: n row-major, t transposed
    #[arg(long, value_name = "LAYOUTS", value_delimiter = ',', default_value = "nn", value_parser = layout_parser())]
    pub layout: Vec<Layout>,
    /// Accuracy, also of a peer; see 'mul --help'
    #[arg(long, value_name = "HOW", default_value = "full", value_parser = accuracy_parser())]
    pub accuracy: Accuracy,
}

const DEFAULT_SIZES: &str = "512,1024,2048";

impl ProductsArgs {
    /// Refuses combinations of options that exclude each other.
    pub fn check(&self) -> Result<(), Failure> {
        match self.dtype.iter().find(|&&ty| self.accuracy.of(ty) != self.accuracy) {
            Some(other) => {
                let name = self.accuracy.name();
                Err(Failure::Usage(format!("--accuracy {name} applies to f32, and --dtype has {other}")))
            }
            None => Ok(()),
        }
    }

    /// The shapes of `--shapes` or of the lists of sizes.
    pub fn shapes(&self) -> Result<Vec<Shape>, Failure> {
        if let Some(path) = &self.shapes {
            return shapes::file(path);
        }
        let usual = || DEFAULT_SIZES.parse::<Sizes>().map_err(Failure::new);
        let m = self.m.clone().map_or_else(usual, Ok)?;
        shapes::zipped(&m, self.n.as_ref(), self.k.as_ref(), self.batch.as_ref())
    }

    /// Every type in every layout in each of these shapes.
    pub fn of(&self, shapes: &[Shape]) -> Vec<ProductCase> {
        let mut all = Vec::new();
        for &ty in &self.dtype {
            for &layout in &self.layout {
                all.extend(shapes.iter().map(|&shape| ProductCase { ty, layout, shape, accuracy: self.accuracy }));
            }
        }
        all
    }

    /// The options of types, layouts and accuracy.
    pub fn kinds(&self) -> String {
        let types = self.dtype.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(",");
        let layouts = self.layout.iter().map(Layout::to_string).collect::<Vec<_>>().join(",");
        format!("--dtype {types} --layout {layouts}{}", mode(self.accuracy))
    }
}

/// The options that repeat these products. Files have their names only.
impl fmt::Display for ProductsArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shapes.as_ref().and_then(|path| path.file_name()) {
            Some(file) => write!(f, "--shapes {}", file.to_string_lossy())?,
            None => {
                write!(f, "--m {}", self.m.as_ref().map_or(DEFAULT_SIZES, Sizes::text))?;
                let lists = [("n", &self.n), ("k", &self.k), ("batch", &self.batch)];
                let mut given = lists.into_iter().filter_map(|(name, list)| Some((name, list.as_ref()?)));
                given.try_for_each(|(name, list)| write!(f, " --{name} {}", list.text()))?;
            }
        }
        write!(f, " {}", self.kinds())
    }
}

/// The option of the accuracy, where it is not the default.
fn mode(accuracy: Accuracy) -> String {
    if accuracy == Accuracy::Full { String::new() } else { format!(" --accuracy {}", accuracy.name()) }
}

/// A product to time.
#[derive(Clone, Copy, Debug)]
pub struct ProductCase {
    pub ty: Type,
    pub layout: Layout,
    pub shape: Shape,
    pub accuracy: Accuracy,
}

impl ProductCase {
    /// The type's name in reports; an accuracy mode counts as a type.
    pub fn dtype(&self) -> &'static str {
        if self.accuracy == Accuracy::Full { self.ty.name() } else { self.accuracy.name() }
    }

    /// The options that repeat it.
    pub fn options(&self) -> String {
        let &ProductCase { ty, layout, shape: Shape { m, n, k, batch }, accuracy } = self;
        let mode = mode(accuracy);
        format!("--m {m} --n {n} --k {k} --batch {batch} --dtype {ty} --layout {layout}{mode}")
    }
}

impl fmt::Display for ProductCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ProductCase { layout, shape: Shape { m, n, k, batch }, .. } = self;
        write!(f, "{} {layout} {m}×{n}×{k}", self.dtype())?;
        if *batch == 1 { Ok(()) } else { write!(f, ", batch of {batch}") }
    }
}

/// The layouts of A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout([bool; 2]);

impl Layout {
    /// Whether A and B are stored transposed.
    pub fn transposed(self) -> [bool; 2] {
        self.0
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|transposed| f.write_str(if *transposed { "t" } else { "n" }))
    }
}

fn layout_parser() -> impl TypedValueParser<Value = Layout> {
    const LAYOUTS: [(&str, [bool; 2]); 4] =
        [("nn", [false, false]), ("nt", [false, true]), ("tn", [true, false]), ("tt", [true, true])];
    let named = |name: String| LAYOUTS.into_iter().find(|(known, _)| *known == name).map(|(_, of)| Layout(of));
    PossibleValuesParser::new(LAYOUTS.map(|(name, _)| name)).try_map(move |name| named(name).ok_or("no such layout"))
}
