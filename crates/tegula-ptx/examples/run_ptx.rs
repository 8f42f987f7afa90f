//! Runs a kernel of a PTX file: `run_ptx FILE KERNEL GRIDX GRIDY BLOCKX BLOCKY SHARED ARG…`.
//!
//! An argument is `f:N` (a buffer of N `f32`), `o:N` (an uninitialized one), or an integer.

use std::time::Instant;

use tegula_ptx::ast::ScalarType;
use tegula_ptx::{Argument, Buffer, Config, Launch, Module};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let text = std::fs::read_to_string(&args[0])?;
    let start = Instant::now();
    let module = Module::parse(&text)?;
    let kernel = module.kernel(&args[1])?;
    println!("parsed and lowered in {:?}", start.elapsed());
    let numbers: Vec<u32> = args[2..7].iter().map(|n| n.parse()).collect::<Result<_, _>>()?;
    let mut buffers = Vec::new();
    let mut arguments = Vec::new();
    for arg in &args[7..] {
        if let Some(n) = arg.strip_prefix("f:") {
            let values: Vec<f32> =
                (0..n.parse::<u32>()?).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as f32 / 64.0 - 2.0).collect();
            arguments.push(Argument::buffer(buffers.len()));
            buffers.push(Buffer::f32(format!("arg{}", arguments.len()), &values));
        } else if let Some(n) = arg.strip_prefix("o:") {
            arguments.push(Argument::buffer(buffers.len()));
            buffers.push(Buffer::uninitialized(
                format!("arg{}", arguments.len()),
                ScalarType::F32,
                [n.parse::<u64>()?],
            ));
        } else {
            arguments.push(Argument::i32(arg.parse()?));
        }
    }
    let mut launch = Launch::new([numbers[0], numbers[1], 1], [numbers[2], numbers[3], 1], arguments);
    launch.shared = numbers[4];
    let start = Instant::now();
    let outcome = kernel.run(&launch, &mut buffers, &Config::default())?;
    let time = start.elapsed();
    print!("{}", outcome.output);
    outcome.diagnostics.iter().for_each(|diagnostic| println!("{diagnostic} (× {})", diagnostic.times));
    for (line, counters) in &outcome.lines {
        println!("{line}: {counters:?}");
    }
    let rate = outcome.thread_instructions as f64 / time.as_secs_f64() / 1e6;
    println!("{:?}, {} thread instructions, {rate:.0} million a second", time, outcome.thread_instructions);
    for buffer in &buffers {
        if let Some(values) = buffer.to_f32() {
            println!("{}: {:?}", buffer.name, &values[..values.len().min(8)]);
        }
    }
    Ok(())
}
