//! The object of `tegula explain --json` on a file: that of `check`, and the trace.

use serde::Serialize;
use tegula_interp::Counters;
use tegula_ptx::trace::{Event, Request, Sync};

use super::view::FileView;
use crate::check_file::element;
use crate::check_file::report::FileReport;
use crate::report::check::Finding;

/// The object of `--json`.
#[derive(Serialize)]
pub struct Explained<'a> {
    #[serde(flatten)]
    report: &'a FileReport,
    trace: TraceObject,
}

#[derive(Serialize)]
struct TraceObject {
    block: [u32; 3],
    /// Total number of steps of the block, recorded or not.
    total: u64,
    /// Whether a limit ended the trace.
    full: bool,
    memories: Vec<MemoryObject>,
    steps: Vec<StepObject>,
}

#[derive(Serialize)]
struct MemoryObject {
    name: String,
    space: &'static str,
    #[serde(rename = "type")]
    ty: &'static str,
    shape: Vec<u64>,
    bytes: u64,
}

#[derive(Serialize)]
struct StepObject {
    number: u64,
    warp: u32,
    /// Empty for a line of the PTX text.
    file: String,
    line: u32,
    lanes: u32,
    sync: Vec<SyncObject>,
    requests: Vec<RequestObject>,
    findings: Vec<Finding>,
    counters: Counters,
}

#[derive(Serialize)]
struct SyncObject {
    kind: &'static str,
    /// For a barrier: its number, then the number of arrived threads and the number that completes
    /// it.
    barrier: Option<u32>,
    threads: Option<[u32; 2]>,
    completes: bool,
}

#[derive(Serialize)]
struct RequestObject {
    kind: &'static str,
    memory: u32,
    element_bytes: u32,
    bytes: u32,
    lanes: u32,
    /// For each of the lanes, the first element.
    elements: Vec<String>,
    /// For each of the lanes, the values.
    values: Vec<Vec<String>>,
}

impl<'a> Explained<'a> {
    pub fn new(view: &'a FileView) -> Explained<'a> {
        let memories = view.memories.iter().map(|memory| MemoryObject {
            name: memory.name.clone(),
            space: memory.space.name(),
            ty: element::name(memory.ty),
            shape: memory.shape.clone(),
            bytes: memory.bytes,
        });
        let steps = view.shown_steps().into_iter().map(|at| &view.trace.steps[at]).map(|step| {
            let line = view.trace.line(step.line);
            StepObject {
                number: step.number,
                warp: step.warp,
                file: line.file.clone(),
                line: line.line,
                lanes: step.lanes(),
                sync: step.events.iter().filter_map(sync).collect(),
                requests: step.requests().map(|of| request(view, of)).collect(),
                findings: step.findings().map(|found| view.finding(found)).collect(),
                counters: step.counters(),
            }
        });
        let trace = TraceObject {
            block: view.trace.block,
            total: view.trace.total,
            full: view.trace.full,
            memories: memories.collect(),
            steps: steps.collect(),
        };
        Explained { report: &view.report, trace }
    }
}

fn sync(event: &Event) -> Option<SyncObject> {
    let other = |kind| SyncObject { kind, barrier: None, threads: None, completes: false };
    Some(match event.sync? {
        Sync::Barrier { id, threads, completes } => {
            SyncObject { kind: "barrier", barrier: Some(id), threads: Some(threads), completes }
        }
        Sync::Warp { .. } => other("warp"),
        Sync::Copies => other("copies"),
        Sync::Mbarrier => other("mbarrier"),
    })
}

fn request(view: &FileView, request: &Request) -> RequestObject {
    let size = view.memories[request.memory as usize].ty.size().max(1);
    let values = |data: &[u8]| data.chunks(size as usize).map(|bytes| view.value(request.memory, bytes)).collect();
    RequestObject {
        kind: request.kind.name(),
        memory: request.memory,
        element_bytes: size,
        bytes: request.bytes,
        lanes: request.lanes,
        elements: request.offsets.iter().map(|&offset| view.element(request.memory, offset)).collect(),
        values: request.accesses().map(|(_, _, data)| values(data)).collect(),
    }
}
