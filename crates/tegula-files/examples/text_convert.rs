//! `text_convert IN OUT` copies a matrix between files whose names end in .mtx, .csv or .npy.

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use tegula::Matrix;
use tegula_files::cast::Number;
use tegula_files::{AnyArray, Array, csv, mtx, npy, output};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [input, output] = arguments.as_slice() else {
        eprintln!("usage: text_convert IN OUT");
        return ExitCode::from(2);
    };
    match convert(Path::new(input), Path::new(output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn convert(input: &Path, output: &Path) -> Result<(), Box<dyn Error>> {
    match read(input)? {
        AnyArray::F64(array) => write(output, &array),
        AnyArray::F32(array) => write(output, &array),
        AnyArray::F16(array) => write(output, &array),
        AnyArray::BF16(array) => write(output, &array),
        AnyArray::I32(array) => write(output, &array),
        AnyArray::I8(array) => write(output, &array),
    }
}

fn read(path: &Path) -> Result<AnyArray, Box<dyn Error>> {
    let name = path.display();
    let mut source = BufReader::with_capacity(1 << 16, File::open(path).map_err(|why| format!("{name}: {why}"))?);
    let read = match path.extension().and_then(|end| end.to_str()) {
        Some("mtx") => mtx::read(&mut source, u64::MAX),
        Some("csv") => csv::read(&mut source, u64::MAX),
        _ => return Ok(npy::read(path)?),
    };
    Ok(read.map_err(|why| format!("{name}: {why}"))?)
}

fn write<T: Number>(path: &Path, array: &Array<T>) -> Result<(), Box<dyn Error>> {
    let view = array.matrix()?;
    let shape = view.shape();
    let matrix = Matrix::from_fn(shape, |b, row, col| view.get(b, row, col).unwrap_or(T::ZERO))?;
    let shape = [shape.rows, shape.cols];
    match path.extension().and_then(|end| end.to_str()) {
        Some("mtx") => output::replace(path, |sink| mtx::write(sink, &shape, matrix.as_slice()))?,
        Some("csv") => output::replace(path, |sink| csv::write(sink, &shape, matrix.as_slice()))?,
        _ => npy::write(path, &matrix)?,
    }
    Ok(())
}
