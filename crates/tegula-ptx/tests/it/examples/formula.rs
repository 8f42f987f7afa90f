//! Formulas of launches, computed on the host in `f64`: `examples/README.md` lists them.

use std::collections::BTreeMap;

use super::entry::Array;

type Values = BTreeMap<String, Array>;

/// Computes the right side of a formula.
pub fn compute(formula: &str, values: &Values) -> Result<Vec<f64>, String> {
    let array = |name: &str| values.get(name.trim()).ok_or_else(|| format!("{formula}: unknown name {name}"));
    if let Some((a, b)) = formula.split_once('@') {
        return Ok(product(array(a)?, array(b)?));
    }
    if let Some((a, b)) = formula.split_once('+') {
        return Ok(array(a)?.values.iter().zip(&array(b)?.values).map(|(a, b)| a + b).collect());
    }
    let call = formula.strip_suffix(')').and_then(|call| call.split_once('('));
    let (function, arguments) = call.ok_or_else(|| format!("{formula}: not a call"))?;
    let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
    let number = |at: usize| -> Result<f64, String> {
        let argument = arguments.get(at).ok_or_else(|| format!("{formula}: too few arguments"))?;
        argument.parse().map_err(|error| format!("{argument}: {error}"))
    };
    let size = |at: usize| number(at).map(|number| number as usize);
    let array = |at: usize| array(arguments.get(at).ok_or_else(|| format!("{formula}: too few arguments"))?);
    if function == "saxpy" {
        return saxpy(number(0)?, array(1)?, size(2)?, array(3)?, size(4)?, size(5)?);
    }
    let x = array(0)?;
    let values = &x.values;
    Ok(match function {
        "copy" => values.clone(),
        "transpose" => transpose(x),
        "sort" => {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            sorted
        }
        "sum" => vec![values.iter().sum()],
        "dot" => vec![values.iter().zip(&array(1)?.values).map(|(x, y)| x * y).sum()],
        "row_sums" => values.chunks(columns(x)).map(|row| row.iter().sum()).collect(),
        "softmax" => values.chunks(columns(x)).flat_map(softmax).collect(),
        "block_sums" => values.chunks(size(1)?).map(|block| block.iter().sum()).collect(),
        "block_inclusive_scan" => values.chunks(size(1)?).flat_map(|block| scan(block, true)).collect(),
        "block_exclusive_scan" => values.chunks(size(1)?).flat_map(|block| scan(block, false)).collect(),
        "histogram" | "histogram_modulo" => histogram(values, size(1)?),
        "add_every" => {
            let every = |x: &Array, n| x.values.iter().step_by(n).copied().collect::<Vec<_>>();
            let n = size(2)?;
            every(x, n).into_iter().zip(every(array(1)?, n)).map(|(a, b)| a + b).collect()
        }
        "gather" => array(1)?.values.iter().map(|&at| values.get(at as usize).copied().unwrap_or(f64::NAN)).collect(),
        "stencil5" => correlate_2d(x, &[(0, 0, 0.2), (-1, 0, 0.2), (1, 0, 0.2), (0, -1, 0.2), (0, 1, 0.2)]),
        "sobel" => {
            correlate_2d(x, &[(-1, -1, -1.0), (-1, 1, 1.0), (0, -1, -2.0), (0, 1, 2.0), (1, -1, -1.0), (1, 1, 1.0)])
        }
        "correlate" => correlate(values, &array(1)?.values, |at, len| (at >= 0 && at < len).then_some(at)),
        "correlate_edge" => correlate(values, &array(1)?.values, |at, len| Some(at.clamp(0, len - 1))),
        _ => return Err(format!("{formula}: unknown function {function}")),
    })
}

/// The last extent.
fn columns(x: &Array) -> usize {
    x.shape.last().map_or(1, |&columns| columns as usize)
}

fn product(a: &Array, b: &Array) -> Vec<f64> {
    let (k, n) = (columns(a), columns(b));
    let element = |row: &[f64], column: usize| (0..k).map(|i| row[i] * b.values[i * n + column]).sum();
    a.values.chunks(k).flat_map(|row| (0..n).map(move |column| element(row, column))).collect()
}

fn transpose(x: &Array) -> Vec<f64> {
    let columns = columns(x);
    (0..columns).flat_map(|column| x.values.iter().skip(column).step_by(columns)).copied().collect()
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - max).exp()).sum();
    row.iter().map(|x| (x - max).exp() / sum).collect()
}

fn scan(block: &[f64], inclusive: bool) -> Vec<f64> {
    let mut sum = 0.0;
    let each = |&x: &f64| {
        sum += x;
        if inclusive { sum } else { sum - x }
    };
    block.iter().map(each).collect()
}

fn histogram(values: &[f64], bins: usize) -> Vec<f64> {
    let mut counts = vec![0.0; bins];
    values.iter().for_each(|&value| counts[value as usize % bins] += 1.0);
    counts
}

fn saxpy(a: f64, x: &Array, x_stride: usize, y: &Array, y_stride: usize, n: usize) -> Result<Vec<f64>, String> {
    let mut result = y.values.clone();
    for i in 0..n {
        let x = x.values.get(i * x_stride).ok_or("saxpy: x is too short")?;
        *result.get_mut(i * y_stride).ok_or("saxpy: y is too short")? += a * x;
    }
    Ok(result)
}

/// Sums of weighted neighbors, by row and column; 0 outside.
fn correlate_2d(x: &Array, weights: &[(i64, i64, f64)]) -> Vec<f64> {
    let columns = columns(x) as i64;
    let rows = x.values.len() as i64 / columns;
    let at = |row: i64, column: i64| {
        let inside = (0..rows).contains(&row) && (0..columns).contains(&column);
        if inside { x.values[(row * columns + column) as usize] } else { 0.0 }
    };
    let element = |i: i64| weights.iter().map(|(y, z, w)| w * at(i / columns + y, i % columns + z)).sum();
    (0..rows * columns).map(element).collect()
}

/// Sums of weighted neighbors; `neighbor` gives the index for one that may be outside.
fn correlate(x: &[f64], weights: &[f64], neighbor: impl Fn(i64, i64) -> Option<i64>) -> Vec<f64> {
    let (len, half) = (x.len() as i64, weights.len() as i64 / 2);
    let term = |i: i64, j: usize| neighbor(i + j as i64 - half, len).map_or(0.0, |at| weights[j] * x[at as usize]);
    (0..len).map(|i| (0..weights.len()).map(|j| term(i, j)).sum()).collect()
}
