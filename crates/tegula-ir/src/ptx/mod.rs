//! Kernels as PTX, the text that NVIDIA's driver assembles.
//!
//! The printer is flat: `emit` has one arm an operation, and each arm writes a line or a short template; `number` writes
//! arithmetic on each type, `memory` addresses and accesses, `matrix` and `hopper` matrix instructions. All write to a
//! `printer`, which keeps registers and scopes, and take names of types from `spelling`. It takes only checked kernels
//! and knows nothing of the kernels there are, of devices or of the interpreter.
//!
//! * **One kernel, one text.** Nothing in it depends on hashing, time or place; source lines never enter it.
//! * **Rounding is written out.** Every floating-point addition, multiplication, division and multiply-add carries `.rn`: the
//!   assembler fuses a bare multiplication and addition.
//! * **The lowest requirements.** `.version` and `.target` are the lowest that the operations at hand need.
//! * **Addresses where their coordinates are.** A part of an address is computed once, in the outermost scope that knows its
//!   coordinates, so that loops hold only what changes in them.

mod emit;
mod hopper;
mod matrix;
mod memory;
mod number;
mod printer;
mod spelling;

use std::fmt::Write;

use printer::{Needs, Printer};
use tegula_core::error::Result;

use crate::launch::Field;
use crate::{Access, Axis, Checked, Kernel, Order2d, Param, ParamKind, SiteId};

/// The most shared memory that an array in the text may claim; beyond it, memory is asked for at launch.
pub const STATIC_SHARED_BYTES: u64 = 48 * 1024;

/// A printed kernel: all that loading and launching it takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Image {
    /// The name of the entry.
    pub entry: String,
    /// The PTX text.
    pub text: String,
    /// Bytes of shared memory to ask for at launch; 0 where the text itself claims what it needs.
    pub shared_bytes: u32,
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Whether it may be started before what precedes it has ended, for which it waits itself.
    pub early: bool,
}

/// Prints a kernel.
///
/// # Errors
/// [`tegula_core::Error::Unsupported`] for arithmetic that no GPU has on this type.
pub fn print(kernel: &Checked<Kernel>) -> Result<Image> {
    Ok(print_lines(kernel)?.0)
}

/// [`print()`], and for each line of the text where the operation was written that it belongs to, where there is one. Parts of an address
/// belong to the first access that they are for.
///
/// # Errors
/// As [`print()`].
pub fn print_lines(kernel: &Checked<Kernel>) -> Result<(Image, Vec<Option<SiteId>>)> {
    let names = field_names(kernel);
    let mut printer = Printer::new(kernel, &names);
    printer.region(kernel.body())?;
    let (body, needs) = printer.finish();
    let entry = identifier(kernel.name());
    let dynamic = kernel.shared_bytes() > STATIC_SHARED_BYTES;
    let head = format!(
        "{}{}{}{}{{\n{}",
        comments(kernel),
        module(kernel, needs, dynamic),
        signature(kernel, &entry, &names),
        limits(kernel),
        if dynamic { String::new() } else { arena(kernel, dynamic) },
    );
    let end = "\tret;\n}\n";
    let of_no_line = |text: &str| std::iter::repeat_n(None, text.lines().count());
    let sites = of_no_line(&head).chain(body.sites).chain(of_no_line(end)).collect();
    let shared_bytes = if dynamic { kernel.shared_bytes() as u32 } else { 0 };
    let text = head + &body.text + end;
    Ok((Image { entry, text, shared_bytes, block: kernel.block(), early: kernel.starts_early() }, sites))
}

/// What the kernel is, for whoever reads the text.
fn comments(kernel: &Kernel) -> String {
    let mut lines = vec![kernel.name().to_string()];
    lines.extend(kernel.notes().iter().flat_map(|note| note.lines()).map(String::from));
    lines.extend(kernel.params().iter().map(describe));
    lines.extend(
        kernel.shared().iter().map(|a| format!("shared {}: {} {:?} at byte {}", a.name, a.ty, a.dims, a.start)),
    );
    // The assembler refuses a text with anything but ASCII, even in a comment.
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

fn module(kernel: &Kernel, needs: Needs, dynamic: bool) -> String {
    let (major, minor) = needs.version;
    let arena = if dynamic { arena(kernel, dynamic) } else { String::new() };
    format!(
        ".version {major}.{minor}\n.target sm_{}{}\n.address_size 64\n{arena}\n",
        needs.target,
        if needs.only { "a" } else { "" }
    )
}

/// The declaration of shared memory: all arrays lie in it.
fn arena(kernel: &Kernel, dynamic: bool) -> String {
    let align = kernel.shared().iter().map(|a| a.align).max().unwrap_or(1);
    match kernel.shared_bytes() {
        0 => String::new(),
        _ if dynamic => format!(".extern .shared .align {align} .b8 arena[];\n"),
        bytes => format!("\t.shared .align {align} .b8 arena[{bytes}];\n"),
    }
}

fn signature(kernel: &Kernel, entry: &str, names: &[(Field, String)]) -> String {
    let params: Vec<String> = names.iter().map(|(field, name)| spelling::declared(*field, name)).collect();
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

/// The parameters in the order in which a launch passes them, each with its own name.
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

/// A name as PTX allows it.
fn identifier(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("k{name}") }
}

#[cfg(test)]
mod tests;
