//! A trace of a file's kernel with derived data: names, types and extents, source lines, and shared
//! memory at a step.

use std::collections::{BTreeMap, BTreeSet};

use tegula_explain::number::format_number;
use tegula_ptx::ast::ScalarType;
use tegula_ptx::trace::{Memory, Request, Space, Step, Sync, Trace};
use tegula_ptx::{Diagnostic, SourceLine};

use super::arrays::Declarations;
use crate::check_file::Prepared;
use crate::check_file::element::{self, Number};
use crate::check_file::report::{self, FileReport};
use crate::check_file::symbol::readable;
use crate::report::check::Finding;

/// A memory, with the type and the extents to show.
#[derive(Clone, Debug)]
pub struct Shown {
    pub name: String,
    pub space: Space,
    /// Type of an element.
    pub ty: ScalarType,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    pub bytes: u64,
}

/// Elements of shared memory at a step.
#[derive(Clone, Debug, Default)]
pub struct SharedState {
    /// For each memory, its bytes; `None` for uninitialized ones.
    bytes: BTreeMap<u32, Vec<Option<u8>>>,
}

/// A trace to describe.
pub struct FileView {
    pub trace: Trace,
    pub report: FileReport,
    pub memories: Vec<Shown>,
    /// Numbers of the arrays in shared memory.
    pub arrays: Vec<u32>,
    /// The warps to show.
    pub warps: Option<Vec<u32>>,
    /// The lines of each file.
    texts: BTreeMap<String, Vec<String>>,
    /// Names of buffers and variables.
    globals: Vec<String>,
    /// The file of the kernel, as the compiler wrote it.
    main: String,
}

impl FileView {
    pub fn new(prepared: &Prepared<'_>, defines: &[String], trace: Trace, report: FileReport) -> FileView {
        let source = &prepared.source;
        let declarations = Declarations::of(if source.compiler.is_some() { &source.text } else { "" }, defines);
        let memories: Vec<Shown> =
            (0..).zip(&trace.memories).map(|(number, memory)| shown(number, memory, &trace, &declarations)).collect();
        let used = |number: &u32| trace.steps.iter().flat_map(Step::requests).any(|request| request.memory == *number);
        // Shared memory as a whole is an array only if it is accessed without a symbol.
        let symbols: BTreeSet<&str> = trace.memories.iter().map(|memory| memory.name.as_str()).collect();
        let is_array = |number: &u32| {
            let memory = &trace.memories[*number as usize];
            memory.space == Space::Shared && memory.bytes > 0 && (memory.name != "shared memory" || used(number))
        };
        let arrays = (0..memories.len() as u32).filter(is_array).collect();
        let mut sources = source.sources();
        let files: BTreeSet<&str> = trace.lines.iter().map(|line| line.file.as_str()).collect();
        let texts = files
            .into_iter()
            .map(|file| (file.to_owned(), sources.lines(file).map(<[String]>::to_vec).unwrap_or_default()))
            .collect();
        let global = |name: &&str| symbols.contains(*name);
        let globals = prepared.source.kernel.variables().map(|(name, ..)| name).filter(global).map(String::from);
        let globals = globals.chain(prepared.buffers.iter().map(|buffer| buffer.name.clone())).collect();
        let main = source.main_file().to_owned();
        FileView { trace, report, memories, arrays, warps: None, texts, globals, main }
    }

    /// The steps to show, by position.
    pub fn shown_steps(&self) -> Vec<usize> {
        let is_shown = |at: &usize| self.warps.as_ref().is_none_or(|of| of.contains(&self.trace.steps[*at].warp));
        (0..self.trace.steps.len()).filter(is_shown).collect()
    }

    /// The lines of a file.
    pub fn text(&self, file: &str) -> &[String] {
        self.texts.get(file).map_or(&[], Vec::as_slice)
    }

    /// `line 7`, or `h.cuh:7` in another file than the kernel's.
    pub fn place(&self, line: &SourceLine) -> String {
        if line.file == self.main { format!("line {}", line.line) } else { line.to_string() }
    }

    /// Converts a diagnostic to a finding, as `check` reports it, for one occurrence.
    pub fn finding(&self, diagnostic: &Diagnostic) -> Finding {
        let globals: Vec<&str> = self.globals.iter().map(String::as_str).collect();
        let finding = report::finding(diagnostic, &globals);
        Finding { message: self.without_file(&finding.message), times: 1, ..finding }
    }

    /// Removes the name of the kernel's file from a message, since its lines are shown.
    pub fn without_file(&self, message: &str) -> String {
        if self.main.is_empty() { message.into() } else { message.replace(&format!("({}:", self.main), "(line ") }
    }

    /// An element of a memory, such as `C[3][7]`.
    pub fn element(&self, memory: u32, offset: u64) -> String {
        let of = &self.memories[memory as usize];
        let size = u64::from(of.ty.size().max(1));
        let index = offset / size;
        let mut text = of.name.clone();
        match of.shape.as_slice() {
            shape @ [_, _, ..] if index < shape.iter().product() => {
                let mut below: u64 = shape.iter().product();
                let mut rest = index;
                for extent in shape {
                    below /= extent;
                    text += &format!("[{}]", rest / below);
                    rest %= below;
                }
            }
            _ => text += &format!("[{index}]"),
        }
        match offset % size {
            0 => text,
            rest => format!("{text} + {rest} bytes"),
        }
    }

    /// The indices of the elements that a lane of a request accesses at `offset`.
    pub fn elements(&self, request: &Request, offset: u64) -> std::ops::Range<u64> {
        let size = u64::from(self.memories[request.memory as usize].ty.size().max(1));
        offset / size..(offset + u64::from(request.bytes)).div_ceil(size)
    }

    /// The value of an element as a text.
    pub fn value(&self, memory: u32, bytes: &[u8]) -> String {
        match Number::decode(self.memories[memory as usize].ty, bytes) {
            Number::Integer(value) => value.to_string(),
            Number::Real(value) => format_number(value),
        }
    }

    /// Shared memory after the step with index `at`; for `None`, before the first step.
    pub fn shared(&self, at: Option<usize>) -> SharedState {
        let mut state = SharedState::default();
        for &array in &self.arrays {
            let of = &self.trace.memories[array as usize];
            let mut bytes = vec![None; of.bytes as usize];
            let before = self.trace.shared.iter().filter_map(|&(offset, value)| {
                Some((u64::from(offset).checked_sub(of.offset).filter(|offset| *offset < of.bytes)?, value))
            });
            before.for_each(|(offset, value)| bytes[offset as usize] = Some(value));
            state.bytes.insert(array, bytes);
        }
        let steps = at.map_or(&[][..], |at| &self.trace.steps[..=at]);
        let requests = steps.iter().flat_map(Step::requests);
        for request in requests.filter(|request| request.kind.writes()) {
            let Some(bytes) = state.bytes.get_mut(&request.memory) else { continue };
            for (_, offset, data) in request.accesses() {
                let places = bytes.iter_mut().skip(offset as usize);
                places.zip(data).for_each(|(place, &value)| *place = Some(value));
            }
        }
        state
    }

    /// The value of an element of a shared array; `None` if it is uninitialized.
    pub fn shared_value(&self, state: &SharedState, array: u32, element: u64) -> Option<String> {
        let size = u64::from(self.memories[array as usize].ty.size().max(1)) as usize;
        let bytes = state.bytes.get(&array)?.get(element as usize * size..(element as usize + 1) * size)?;
        let bytes: Option<Vec<u8>> = bytes.iter().copied().collect();
        bytes.map(|bytes| self.value(array, &bytes))
    }

    /// The memory and the element that a finding names.
    pub fn named(&self, diagnostic: &Diagnostic) -> Option<(u32, u64)> {
        let text = diagnostic.element.as_deref()?;
        let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok();
        let end = text.find(['[', ' '])?;
        let memory = self.trace.memories.iter().position(|memory| memory.name == text[..end])?;
        let of = &self.memories[memory];
        let element = match text.split_once("at byte ") {
            Some((_, byte)) => number(byte)? / u64::from(of.ty.size().max(1)),
            None => {
                let indices = text[end..].split('[').skip(1).map(number).collect::<Option<Vec<_>>>()?;
                let extents = self.trace.memories[memory].shape.iter().chain(std::iter::repeat(&1));
                indices.iter().zip(extents).fold(0, |at, (index, extent)| at * extent + index)
            }
        };
        Some((memory as u32, element))
    }

    /// Whether a barrier of the block completes in a step.
    pub fn completes_barrier(&self, at: usize) -> bool {
        let completes = |sync| matches!(sync, Some(Sync::Barrier { completes: true, .. }));
        self.trace.steps[at].events.iter().any(|event| completes(event.sync))
    }
}

/// Determines the type and the extents to show. Arrays that the PTX declares as bytes get those of
/// the source; without a source declaration, the type of their accesses.
fn shown(number: u32, memory: &Memory, trace: &Trace, declarations: &Declarations) -> Shown {
    let name = readable(&memory.name);
    let accessed = || {
        let requests = trace.steps.iter().flat_map(Step::requests).filter(|request| request.memory == number);
        let types: BTreeSet<(bool, u32, &str)> =
            requests.map(|request| (!request.ty.is_float(), request.ty.size(), request.ty.name())).collect();
        types.first().and_then(|(.., name)| ScalarType::from_name(name)).unwrap_or(ScalarType::U32)
    };
    let declared = (memory.space == Space::Shared).then(|| declarations.find(&name, memory.bytes)).flatten();
    let (declared, extents) = declared.unwrap_or_default();
    let ty = match memory.ty {
        ScalarType::B8 => element::of_memory(declared.unwrap_or_else(accessed)),
        ty => element::of_memory(ty),
    };
    let shape = match (extents.is_empty(), memory.ty) {
        (false, _) => extents,
        (true, ScalarType::B8) => vec![memory.bytes / u64::from(ty.size().max(1))],
        (true, _) => memory.shape.clone(),
    };
    Shown { name, space: memory.space, ty, shape, bytes: memory.bytes }
}
