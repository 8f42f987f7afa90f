//! The PTX printer: a checked kernel as the text that NVIDIA's driver assembles.
//!
//! The printer is flat. `emit` has one arm for each operation, which writes a line or a short
//! template. `arithmetic` prints arithmetic by type, `memory` addresses and accesses, `matrix` and
//! `hopper` matrix instructions. All write to a `printer`, which allocates registers and tracks
//! scopes; `syntax` has the names of types. The printer does not depend on particular kernels, on
//! devices or on the interpreter.
//!
//! * **Deterministic.** The text does not depend on hashing, time or paths, and has no source
//!   lines.
//! * **Explicit rounding.** Every floating-point addition, multiplication, division and
//!   multiply-add has `.rn`, since the assembler fuses a bare multiplication and addition.
//! * **Minimal requirements.** `.version` and `.target` are the lowest that the operations require.
//! * **Hoisted addresses.** A part of an address is computed once, in the outermost scope that
//!   defines its coordinates. Loops compute only what changes in them.

mod arithmetic;
mod emit;
mod hopper;
mod matrix;
mod memory;
mod printer;
mod syntax;

use std::fmt::Write;

use printer::{Printer, Requirements};
use tegula_core::error::Result;

use crate::launch::Field;
use crate::{Access, Axis, Checked, Kernel, Order2d, Param, ParamKind, SiteId};

/// The limit of statically declared shared memory; beyond it, shared memory is dynamic.
pub const STATIC_SHARED_BYTES: u64 = 48 * 1024;

/// A printed kernel, with all that loading and launching it requires.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Image {
    /// The name of the entry.
    pub entry: String,
    /// The PTX text.
    pub text: String,
    /// Bytes of dynamic shared memory; 0 where the text declares it statically.
    pub shared_bytes: u32,
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Whether the kernel may start before the preceding launches complete, and waits for them
    /// itself.
    pub uses_griddep_wait: bool,
}

/// Prints a kernel.
///
/// # Errors
/// [`tegula_core::Error::Unsupported`] for arithmetic that no GPU supports on a type.
pub fn print(kernel: &Checked<Kernel>) -> Result<Image> {
    Ok(print_lines(kernel)?.0)
}

/// [`print()`], with the source location of the operation behind each line of the text, if any.
///
/// The parts of an address belong to the first access that uses them.
///
/// # Errors
/// As for [`print()`].
pub fn print_lines(kernel: &Checked<Kernel>) -> Result<(Image, Vec<Option<SiteId>>)> {
    let names = field_names(kernel);
    let mut printer = Printer::new(kernel, &names);
    printer.region(kernel.body())?;
    let (body, requirements) = printer.finish();
    let entry = identifier(kernel.name());
    let dynamic = kernel.shared_bytes() > STATIC_SHARED_BYTES;
    let head = format!(
        "{}{}{}{}{{\n{}",
        comments(kernel),
        module(kernel, requirements, dynamic),
        signature(kernel, &entry, &names),
        limits(kernel),
        if dynamic { String::new() } else { arena(kernel, dynamic) },
    );
    let end = "\tret;\n}\n";
    let without_sites = |text: &str| std::iter::repeat_n(None, text.lines().count());
    let sites = without_sites(&head).chain(body.sites).chain(without_sites(end)).collect();
    let shared_bytes = if dynamic { kernel.shared_bytes() as u32 } else { 0 };
    let text = head + &body.text + end;
    Ok((
        Image { entry, text, shared_bytes, block: kernel.block(), uses_griddep_wait: kernel.uses_griddep_wait() },
        sites,
    ))
}

/// The comments at the start of the text, which describe the kernel.
fn comments(kernel: &Kernel) -> String {
    let mut lines = vec![kernel.name().to_string()];
    lines.extend(kernel.notes().iter().flat_map(|note| note.lines()).map(String::from));
    lines.extend(kernel.params().iter().map(describe));
    lines.extend(
        kernel.shared().iter().map(|a| format!("shared {}: {} {:?} at byte {}", a.name, a.ty, a.dims, a.start)),
    );
    // The assembler rejects characters other than ASCII, even in comments.
    let ascii = |line: &str| line.chars().map(|c| if c.is_ascii_graphic() { c } else { ' ' }).collect::<String>();
    lines.iter().fold(String::new(), |text, line| text + "// " + ascii(line).trim_end() + "\n")
}

fn describe(param: &Param) -> String {
    let name = &param.name;
    match param.kind {
        ParamKind::Scalar(ty) => format!("{name}: {ty}"),
        ParamKind::Matrix { ty, access, order, aligned, tiles } => {
            let access = match access {
                Access::Read => "read",
                Access::Write => "written",
                Access::ReadWrite => "read and written",
            };
            let order = match order {
                Order2d::Strided => "any strides",
                Order2d::RowMajor => "row-major",
                Order2d::ColMajor => "column-major",
            };
            let tiles = tiles.map_or(String::new(), |tiles| format!(", in tiles of {}x{}", tiles.rows, tiles.cols));
            format!("{name}: {ty} matrix, {access}, {order}, aligned to {aligned}{tiles}")
        }
    }
}

fn module(kernel: &Kernel, requirements: Requirements, dynamic: bool) -> String {
    let (major, minor) = requirements.version;
    let arena = if dynamic { arena(kernel, dynamic) } else { String::new() };
    format!(
        ".version {major}.{minor}\n.target sm_{}{}\n.address_size 64\n{arena}\n",
        requirements.target,
        if requirements.arch_specific { "a" } else { "" }
    )
}

/// The declaration of shared memory, which holds all arrays.
fn arena(kernel: &Kernel, dynamic: bool) -> String {
    let align = kernel.shared().iter().map(|a| a.align).max().unwrap_or(1);
    match kernel.shared_bytes() {
        0 => String::new(),
        _ if dynamic => format!(".extern .shared .align {align} .b8 arena[];\n"),
        bytes => format!("\t.shared .align {align} .b8 arena[{bytes}];\n"),
    }
}

fn signature(kernel: &Kernel, entry: &str, names: &[(Field, String)]) -> String {
    let params: Vec<String> = names.iter().map(|(field, name)| syntax::param_declaration(*field, name)).collect();
    if kernel.params().is_empty() {
        return format!(".visible .entry {entry}()\n");
    }
    format!(".visible .entry {entry}(\n{}\n)\n", params.join(",\n"))
}

fn limits(kernel: &Kernel) -> String {
    let [x, y, z] = kernel.block();
    let mut text = format!(".maxntid {x}, {y}, {z}\n");
    if kernel.min_blocks() > 0 {
        let _ = writeln!(text, ".minnctapersm {}", kernel.min_blocks());
    }
    if kernel.cluster() > 1 {
        let _ = writeln!(text, ".reqnctapercluster {}, 1, 1", kernel.cluster());
    }
    text
}

/// The parameters in launch order, each with a unique name.
fn field_names(kernel: &Kernel) -> Vec<(Field, String)> {
    let mut names: Vec<(Field, String)> = Vec::new();
    for field in kernel.fields() {
        let (param, suffix) = match field {
            Field::Address(param) => (param, "_ptr"),
            Field::Tensor(param) => (param, "_tensor"),
            Field::Extent(param, Axis::Batches) => (param, "_batches"),
            Field::Extent(param, Axis::Rows) => (param, "_rows"),
            Field::Extent(param, Axis::Cols) => (param, "_cols"),
            Field::Stride(param, Axis::Batches) => (param, "_batch_stride"),
            Field::Stride(param, Axis::Rows) => (param, "_row_stride"),
            Field::Stride(param, Axis::Cols) => (param, "_col_stride"),
            Field::Scalar(param, _) => (param, ""),
        };
        let mut name = identifier(&kernel.params()[param.index()].name) + suffix;
        while names.iter().any(|(_, other)| *other == name) {
            name.push('_');
        }
        names.push((field, name));
    }
    names
}

/// A valid PTX identifier.
fn identifier(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("k{name}") }
}

#[cfg(test)]
mod tests;
