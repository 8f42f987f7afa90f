//! Machine code (SASS) of a kernel: instructions with their PTX lines, registers and spills.
//!
//! Needs `ptxas` and `nvdisasm` of a CUDA toolkit, but no GPU. The driver's assembler is that of
//! the toolkit of its version.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use tegula_ir::ptx::Image;

use crate::error::{Error, Result};

/// The time limit of one program run.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The assembler and the disassembler.
#[derive(Clone, Debug)]
pub struct Tools {
    ptxas: PathBuf,
    nvdisasm: PathBuf,
}

/// A machine instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The byte offset in the kernel.
    pub address: u32,
    /// The disassembler's text.
    pub text: String,
    /// The line of the PTX text, from 0; one of them where several lines became one instruction.
    pub line: Option<usize>,
}

/// The machine code of a kernel.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The instructions.
    pub code: Vec<Instruction>,
    /// Registers per thread.
    pub registers: u32,
    /// Spilled bytes per thread.
    pub spilled: u32,
}

impl Tools {
    /// Finds both programs: beside the `ptxas` that `TEGULA_PTXAS` names, in `PATH`, in `CUDA_HOME`
    /// or in `/usr/local/cuda`.
    pub fn find() -> Option<Tools> {
        let named = env::var_os("TEGULA_PTXAS").map(PathBuf::from);
        let path = env::var_os("PATH").unwrap_or_default();
        let toolkits = [env::var_os("CUDA_HOME"), Some("/usr/local/cuda".into())];
        let folders =
            named.iter().filter_map(|ptxas| ptxas.parent().map(Path::to_path_buf)).chain(env::split_paths(&path));
        let mut folders = folders.chain(toolkits.into_iter().flatten().map(|toolkit| Path::new(&toolkit).join("bin")));
        folders.find_map(|folder| {
            let tools = Tools { ptxas: folder.join("ptxas"), nvdisasm: folder.join("nvdisasm") };
            (tools.ptxas.is_file() && tools.nvdisasm.is_file()).then_some(tools)
        })
    }

    /// Assembles PTX for a target such as `sm_90` and disassembles the result.
    ///
    /// # Errors
    /// [`Error::Tool`] with the program's message, or after a minute without a result;
    /// [`Error::Output`] if temporary files cannot be written.
    pub fn disassemble(&self, image: &Image, target: &str) -> Result<Listing> {
        let folder = tempfile::tempdir()?;
        let [text, binary] = ["kernel.ptx", "kernel.cubin"].map(|name| folder.path().join(name));
        fs::write(&text, &image.text)?;
        let arch = format!("-arch={target}");
        let log = run(
            &self.ptxas,
            &[OsStr::new("-v"), "-lineinfo".as_ref(), arch.as_ref(), text.as_ref(), "-o".as_ref(), binary.as_ref()],
            folder.path(),
        )?;
        let listing = run(&self.nvdisasm, &["-c".as_ref(), "-gp".as_ref(), binary.as_ref()], folder.path())?;
        let number = |after: &str, before: &str| {
            let (_, rest) = log.split_once(after)?;
            rest.split_once(before)?.0.trim().parse().ok()
        };
        let spilled = log.split_once("bytes stack frame,").and_then(|(_, rest)| rest.split_once(" bytes spill stores"));
        Ok(Listing {
            code: code(&listing),
            registers: number("Used ", " registers")
                .ok_or_else(|| tool(&self.ptxas, "its output has no register count"))?,
            spilled: spilled.and_then(|(bytes, _)| bytes.trim().parse().ok()).unwrap_or(0),
        })
    }
}

/// The instructions of a listing, in which a comment precedes the instructions of each PTX line.
fn code(listing: &str) -> Vec<Instruction> {
    let (mut code, mut line) = (Vec::new(), None);
    for text in listing.lines().map(str::trim) {
        if let Some(comment) = text.strip_prefix("//## File") {
            let number = comment.rsplit_once("line ").and_then(|(_, number)| number.trim().parse::<usize>().ok());
            line = number.and_then(|number| number.checked_sub(1));
        } else if let Some((address, rest)) = text.strip_prefix("/*").and_then(|text| text.split_once("*/")) {
            let Ok(address) = u32::from_str_radix(address, 16) else { continue };
            let text = rest.trim().trim_end_matches(';').trim_end();
            // The second half of an encoding has an address but no text.
            if !text.is_empty() {
                code.push(Instruction { address, text: text.into(), line });
            }
        }
    }
    code
}

fn tool(program: &Path, reason: impl Into<String>) -> Error {
    Error::Tool { program: program.display().to_string(), reason: reason.into() }
}

/// Runs a program and returns its standard output and error.
///
/// Both go to a file, so the program never blocks on a full pipe.
fn run(program: &Path, arguments: &[&OsStr], folder: &Path) -> Result<String> {
    let log = folder.join("log");
    let output = fs::File::create(&log)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    let mut child = command.spawn().map_err(|error| tool(program, error.to_string()))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > TIMEOUT {
            // The kill fails if the program has just ended.
            let _ = child.kill();
            child.wait()?;
            return Err(tool(program, "no result after a minute"));
        }
        thread::sleep(Duration::from_millis(5));
    };
    let output = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if status.success() { Ok(output) } else { Err(tool(program, output.trim())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_maps_instructions_to_ptx_lines() {
        let listing = "\
.text.k:\n\
\t//## File \".nv_debug_ptx_txt\", line 38\n\
        /*0000*/                   LDC R1, c[0x0][0x28] ;\n\
.L_x_1:\n\
\t//## File \".nv_debug_ptx_txt\", line 66\n\
        /*0010*/              @!P0 LDS.128 R8, [R16+0x10] ;\n\
        /*0020*/                   NOP;\n";
        let of = |address, text: &str, line| Instruction { address, text: text.into(), line: Some(line) };
        assert_eq!(
            code(listing),
            [of(0, "LDC R1, c[0x0][0x28]", 37), of(16, "@!P0 LDS.128 R8, [R16+0x10]", 65), of(32, "NOP", 65)]
        );
    }
}
