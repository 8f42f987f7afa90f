//! Events that the library emits through `tracing`. In a separate process, since some events occur
//! once per process.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tegula::{Device, Gemm, Matrix};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Records every event as a line.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tegula")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn gemm_run_logs_the_plan_and_the_instruction_set() {
    let (a, mut c) = (Matrix::<f32>::zeros(3, 3).unwrap(), Matrix::zeros(3, 3).unwrap());
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        for device in [Device::cpu(), Device::interp(), Device::cpu()] {
            Gemm::new(a.view(), a.view(), c.view_mut()).on(&device).run().unwrap();
        }
    });
    let lines = lines.0.lock().unwrap();
    let of = |text: &str| lines.iter().filter(|line| line.starts_with("DEBUG") && line.contains(text)).count();
    assert_eq!((of("plan chosen"), of("device=cpu"), of("device=interp")), (3, 2, 1), "{lines:?}");
    assert_eq!(of("instruction set chosen"), 1, "{lines:?}");
    assert_eq!(lines.len(), 4, "{lines:?}");
}
