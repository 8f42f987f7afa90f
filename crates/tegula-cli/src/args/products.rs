//! Which products `bench` and `tune` time: shapes, types and layouts.

use std::fmt;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use tegula::Accuracy;
use tegula::element::Type;

use super::{accuracy_parser, type_parser};
use crate::failure::Failure;
use crate::shapes::{self, Shape, Sizes};

/// Products: each type in each layout in each shape.
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
    /// Take m, n, k and batch from a file, a product a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub shapes: Option<PathBuf>,
    /// Types of A and B
    #[arg(long, value_name = "TYPES", value_delimiter = ',', default_value = "f32", value_parser = type_parser())]
    pub dtype: Vec<Type>,
    /// How A and B are stored: n as they are multiplied, t transposed
    #[arg(long, value_name = "LAYOUTS", value_delimiter = ',', default_value = "nn", value_parser = layout_parser())]
    pub layout: Vec<Layout>,
    /// How exact products have to be, a peer's too; see 'mul --help'
    #[arg(long, value_name = "HOW", default_value = "full", value_parser = accuracy_parser())]
    pub accuracy: Accuracy,
}

const DEFAULT_SIZES: &str = "512,1024,2048";

impl ProductsArgs {
    /// What no single option can tell is wrong.
    pub fn check(&self) -> Result<(), Failure> {
        match self.dtype.iter().find(|&&ty| self.accuracy.of(ty) != self.accuracy) {
            Some(other) => {
                let name = self.accuracy.name();
                Err(Failure::Usage(format!("--accuracy {name} is a mode of f32, and --dtype names {other}")))
            }
            None => Ok(()),
        }
    }

    /// The shapes that are asked for.
    pub fn shapes(&self) -> Result<Vec<Shape>, Failure> {
        if let Some(path) = &self.shapes {
            return shapes::file(path);
        }
        let usual = || DEFAULT_SIZES.parse::<Sizes>().map_err(Failure::new);
        let m = self.m.clone().map_or_else(usual, Ok)?;
        shapes::zipped(&m, self.n.as_ref(), self.k.as_ref(), self.batch.as_ref())
    }

    /// Every type in every layout in every one of these shapes.
    pub fn of(&self, shapes: &[Shape]) -> Vec<Asked> {
        let mut all = Vec::new();
        for &ty in &self.dtype {
            for &layout in &self.layout {
                all.extend(shapes.iter().map(|&shape| Asked { ty, layout, shape, accuracy: self.accuracy }));
            }
        }
        all
    }

    /// The options that say the types and layouts again.
    pub fn kinds(&self) -> String {
        let types = self.dtype.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(",");
        let layouts = self.layout.iter().map(Layout::to_string).collect::<Vec<_>>().join(",");
        format!("--dtype {types} --layout {layouts}{}", mode(self.accuracy))
    }
}

/// The options that say these products again. Of files only names are told.
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

/// The option that says how exact products have to be, where it is not the usual one.
fn mode(accuracy: Accuracy) -> String {
    if accuracy == Accuracy::Full { String::new() } else { format!(" --accuracy {}", accuracy.name()) }
}

/// A product that is to be timed.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub ty: Type,
    pub layout: Layout,
    pub shape: Shape,
    pub accuracy: Accuracy,
}

impl Asked {
    /// What a report calls the type. A mode of a type is told as a type: its figures stand beside others.
    pub fn dtype(&self) -> &'static str {
        if self.accuracy == Accuracy::Full { self.ty.name() } else { self.accuracy.name() }
    }

    /// The options that say it again.
    pub fn options(&self) -> String {
        let &Asked { ty, layout, shape: Shape { m, n, k, batch }, accuracy } = self;
        let mode = mode(accuracy);
        format!("--m {m} --n {n} --k {k} --batch {batch} --dtype {ty} --layout {layout}{mode}")
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked { layout, shape: Shape { m, n, k, batch }, .. } = self;
        write!(f, "{} {layout} {m}×{n}×{k}", self.dtype())?;
        if *batch == 1 { Ok(()) } else { write!(f, ", {batch} of them") }
    }
}

/// How A and B are stored.
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
