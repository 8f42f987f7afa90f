//! PTX text: parsing, lowering, and a small launch of every kernel.

use tegula_ptx::{Argument, Buffer, Config, Launch, Module};

use crate::{bounded, check_error_message};

/// Largest variable of a module that is run, in bytes.
const MAX_VARIABLE: u64 = 1 << 16;

/// Checks a PTX module.
///
/// A launch of it ends: a warp has a limit of instructions.
pub fn ptx(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let module = match Module::parse(&text) {
        Ok(module) => module,
        Err(error) => return check_error_message(&error.to_string()),
    };
    if module.ast().variables.iter().any(|variable| variable.bytes() > MAX_VARIABLE) {
        return;
    }
    for name in module.kernels() {
        bounded(|| launch(&module, name));
    }
}

fn launch(module: &Module, name: &str) {
    let kernel = match module.kernel(name) {
        Ok(kernel) => kernel,
        Err(error) => return check_error_message(&error.to_string()),
    };
    let mut buffers: Vec<Buffer> = Vec::new();
    let mut arguments = Vec::new();
    for param in kernel.params() {
        if param.bytes == 8 {
            arguments.push(Argument::buffer(buffers.len()));
            buffers.push(Buffer::f32(param.name, &[1.0; 16]));
        } else {
            arguments.push(Argument::Value(vec![1; param.bytes as usize]));
        }
    }
    let launch = Launch { shared: 64, ..Launch::new([2, 1, 1], [36, 1, 1], arguments) };
    let config = Config { steps: 500, parallel: false, ..Config::default() };
    match kernel.run(&launch, &mut buffers, &config) {
        Ok(outcome) => outcome.diagnostics.iter().for_each(|diagnostic| check_error_message(&diagnostic.message)),
        Err(error) => check_error_message(&error.to_string()),
    }
}
