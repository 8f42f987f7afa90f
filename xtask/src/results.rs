//! Result tables in Markdown, from the files in `benchmarks`. A table stands between two markers,
//! `<!-- results: NAME -->` and `<!-- /results -->`; everything between them is generated.

use std::fs;

use crate::json::Json;
use crate::{Outcome, root};

/// Files with generated tables.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/benchmarks.md"];

/// The sizes that a line of the GPU table is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    All,
    /// m, n, and k are multiples of 8, so that rows of 16-bit types start at multiples of 16 bytes.
    MultiplesOf8,
    Others,
}

/// A line of the GPU table: label, file, layouts (all if empty), epilogue, sizes.
const GPU: [(&str, &str, &[&str], &str, Sizes); 16] = [
    ("f32", "h200-f32", &[], "none", Sizes::All),
    ("f64", "h200-f64", &[], "none", Sizes::All),
    ("bf16, multiples of 8", "h200-bf16", &[], "none", Sizes::MultiplesOf8),
    ("bf16, other sizes", "h200-bf16", &[], "none", Sizes::Others),
    ("f16, multiples of 8", "h200-f16", &[], "none", Sizes::MultiplesOf8),
    ("f16, other sizes", "h200-f16", &[], "none", Sizes::Others),
    ("bf16, random multiples of 8", "h200-random-bf16", &[], "none", Sizes::MultiplesOf8),
    ("bf16, other random sizes", "h200-random-bf16", &[], "none", Sizes::Others),
    ("bf16, layers of models", "h200-models-bf16", &[], "none", Sizes::All),
    ("bf16, layers of models, on an H100", "h100-models-bf16", &[], "none", Sizes::All),
    ("bf16 with bias and GELU", "h200-bf16-epilogue", &[], "bias+gelu", Sizes::All),
    ("i8, A and Bᵀ row-major", "h200-i8", &["nt"], "none", Sizes::All),
    ("i8, other layouts", "h200-i8", &["nn", "tn"], "none", Sizes::All),
    ("tf32", "h200-tf32", &[], "none", Sizes::All),
    ("f16 and bf16 by `mma.sync`, for GPUs before Hopper", "h200-f16-mma", &[], "none", Sizes::All),
    ("i32", "h200-i32", &[], "none", Sizes::All),
];

/// Lines of the CPU table: label, file, numbers of threads.
const CPU: [(&str, &str, &[f64]); 15] = [
    ("f32", "cpu-f32", &[1.0, 2.0]),
    ("f64", "cpu-f64", &[1.0, 2.0]),
    ("f32, Zen 5, layers of models too", "cpu-zen5-f32", &[1.0, 2.0]),
    ("f64, Zen 5, layers of models too", "cpu-zen5-f64", &[1.0, 2.0]),
    ("bf16, Zen 5, layers of models too", "cpu-zen5-bf16", &[1.0, 2.0]),
    ("i8, Zen 5, layers of models too", "cpu-zen5-i8", &[1.0, 2.0]),
    ("f32, Zen 4, layers of models too", "cpu-zen4-f32", &[1.0, 2.0]),
    ("f64, Zen 4, layers of models too", "cpu-zen4-f64", &[1.0, 2.0]),
    ("bf16, Zen 4, layers of models too", "cpu-zen4-bf16", &[1.0, 2.0]),
    ("i8, Zen 4, layers of models", "cpu-zen4-i8", &[1.0, 2.0]),
    ("f32, layers of models too", "cpu-spr16-f32", &[16.0]),
    ("f64", "cpu-spr16-f64", &[16.0]),
    ("bf16 (AMX)", "cpu-bf16", &[1.0, 2.0]),
    ("i8 (AMX)", "cpu-i8", &[1.0, 2.0]),
    ("f32 and f64, AVX2 only", "cpu-avx2", &[1.0, 2.0]),
];

/// Files of which only the losing rows are in a table.
const LOSING_ONLY: [&str; 20] = [
    "h200-models-bf16-nn",
    "h200-models-f16",
    "h200-models-f32",
    "h200-models-f64",
    "h200-batches-bf16",
    "h200-batches-f16",
    "h200-batches-f32",
    "h200-batches-f64",
    "cpu-zen5-nt-f32",
    "cpu-zen5-nt-f64",
    "cpu-zen5-nt-bf16",
    "cpu-zen5-nt-i8",
    "cpu-zen5-vectors-f32",
    "cpu-zen5-vectors-f64",
    "cpu-zen4-nt-f32",
    "cpu-zen4-nt-f64",
    "cpu-zen4-nt-bf16",
    "cpu-zen4-nt-i8",
    "cpu-zen4-vectors-f32",
    "cpu-zen4-vectors-f64",
];

/// Rows at or above this ratio are not listed as losing.
const LOSING: f64 = 0.95;

/// Rewrites the tables; with `check`, fails where that would change a document.
pub fn run(check: bool) -> Outcome {
    for document in DOCUMENTS {
        let path = root().join(document);
        let old = fs::read_to_string(&path).map_err(|e| format!("{document}: {e}"))?;
        let new = rewrite(&old, &table).map_err(|why| format!("{document}: {why}"))?;
        if check && new != old {
            return Err(format!("{document}: stale results; run `cargo xtask results`"));
        }
        if new != old {
            fs::write(&path, new).map_err(|e| format!("{document}: {e}"))?;
            println!("{document}: rewritten");
        }
    }
    Ok(())
}

/// The document with the tables between its markers made again.
fn rewrite(document: &str, table: &dyn Fn(&str) -> Result<String, String>) -> Result<String, String> {
    const START: &str = "<!-- results: ";
    const END: &str = "<!-- /results -->";
    let mut text = String::new();
    let mut rest = document;
    while let Some((before, from)) = rest.split_once(START) {
        let (name, from) = from.split_once(" -->\n").ok_or("unfinished results marker")?;
        let (_, after) = from.split_once(END).ok_or_else(|| format!("results marker {name:?} without {END}"))?;
        text += &format!("{before}{START}{name} -->\n{}{END}", table(name)?);
        rest = after;
    }
    Ok(text + rest)
}

fn table(name: &str) -> Result<String, String> {
    match name {
        "gpu" => gpu(),
        "cpu" => cpu(),
        "losing" => losing(),
        _ => Err(format!("unknown results table {name:?}; known: gpu, cpu, losing")),
    }
}

/// A measured product.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    shape: String,
    multiples_of_8: bool,
    dtype: String,
    layout: String,
    epilogue: String,
    threads: Option<f64>,
    /// The peer's median time by Tegula's.
    ratio: f64,
    peer: String,
}

/// The rows of a result file that have medians of both sides.
fn rows(name: &str) -> Result<Vec<Row>, String> {
    let path = root().join("benchmarks").join(name).with_extension("json");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let json = Json::parse(&text).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(json.array("rows").iter().filter_map(row).collect())
}

fn row(row: &Json) -> Option<Row> {
    let (m, n, k) = (row.number("m")?, row.number("n")?, row.number("k")?);
    let batch = row.number("batch").filter(|&batch| batch > 1.0).map(|batch| format!("{batch} × "));
    let shape = if m == n && n == k { format!("{m}³") } else { format!("{m}×{n}×{k}") };
    Some(Row {
        shape: batch.unwrap_or_default() + &shape,
        multiples_of_8: [m, n, k].iter().all(|extent| extent % 8.0 == 0.0),
        dtype: row.text("dtype")?.into(),
        layout: row.text("layout")?.into(),
        epilogue: row.text("epilogue")?.into(),
        threads: row.number("threads"),
        ratio: row.number("peer_us")? / row.number("us")?,
        peer: row.text("peer")?.split(" algorithm").next()?.into(),
    })
}

/// Rows as cells: how many, geometric mean, worst with its shape, best, share that is as fast or
/// faster.
fn cells(rows: &[Row]) -> String {
    let mean = (rows.iter().map(|row| row.ratio.ln()).sum::<f64>() / rows.len() as f64).exp();
    let by_ratio = |a: &&Row, b: &&Row| a.ratio.total_cmp(&b.ratio);
    let (Some(worst), Some(best)) = (rows.iter().min_by(by_ratio), rows.iter().max_by(by_ratio)) else {
        return "0 | | | |".into();
    };
    let ahead = rows.iter().filter(|row| row.ratio >= 1.0).count();
    format!(
        "{} | **{mean:.2}** | {:.2} ({}) | {:.2} ({}) | {} %",
        rows.len(),
        worst.ratio,
        worst.shape,
        best.ratio,
        best.shape,
        (100 * ahead + rows.len() / 2) / rows.len()
    )
}

const HEAD: &str = "rows | geometric mean | worst | best | ≥ 1 |";

fn gpu() -> Result<String, String> {
    let mut text = format!("| H200, against cublasLt | {HEAD}\n|---|--:|--:|--:|--:|--:|\n");
    for (label, file, layouts, epilogue, sizes) in GPU {
        let mut rows = rows(file)?;
        rows.retain(|row| (layouts.is_empty() || layouts.contains(&&*row.layout)) && row.epilogue == epilogue);
        rows.retain(|row| sizes == Sizes::All || row.multiples_of_8 == (sizes == Sizes::MultiplesOf8));
        if !rows.is_empty() {
            text += &format!("| {label} | {} |\n", cells(&rows));
        }
    }
    Ok(text)
}

fn cpu() -> Result<String, String> {
    let mut text = format!("| CPU, against the fastest library of each row | {HEAD}\n|---|--:|--:|--:|--:|--:|\n");
    for (label, file, threads) in CPU {
        let rows = rows(file)?;
        for threads in threads {
            let rows: Vec<Row> = rows.iter().filter(|row| row.threads == Some(*threads)).cloned().collect();
            let plural = if *threads > 1.0 { "s" } else { "" };
            if !rows.is_empty() {
                text += &format!("| {label}, {threads} thread{plural} | {} |\n", cells(&rows));
            }
        }
    }
    Ok(text)
}

/// The rows of listed shapes below [`LOSING`], slowest first. Random shapes are in their file.
fn losing() -> Result<String, String> {
    let files = GPU.iter().map(|line| line.1).filter(|file| !file.ends_with("random"));
    let mut files: Vec<&str> = files.chain(CPU.iter().map(|line| line.1)).chain(LOSING_ONLY).collect();
    files.dedup();
    let mut losing = Vec::new();
    for file in files {
        losing.extend(rows(file)?.into_iter().filter(|row| row.ratio < LOSING).map(|row| (file, row)));
    }
    losing.sort_by(|(_, a), (_, b)| a.ratio.total_cmp(&b.ratio));
    let mut text =
        String::from("| ratio | product | type | layout | | library | file |\n|--:|---|---|---|---|---|---|\n");
    for (file, row) in losing {
        let threads = row.threads.map(|threads| format!("{threads} threads")).unwrap_or_default();
        let threads = if threads == "1 threads" { "1 thread".into() } else { threads };
        let more = if row.epilogue == "none" { threads } else { format!("{threads}{}", row.epilogue) };
        text += &format!(
            "| {:.2} | {} | {} | {} | {more} | {} | `{file}.json` |\n",
            row.ratio, row.shape, row.dtype, row.layout, row.peer
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrite_replaces_text_between_markers_only() {
        let document = "a\n<!-- results: x -->\nold\n<!-- /results -->\nb\n";
        let made = rewrite(document, &|name| Ok(format!("new {name}\n"))).unwrap();
        assert_eq!(made, "a\n<!-- results: x -->\nnew x\n<!-- /results -->\nb\n");
        assert!(rewrite("<!-- results: x -->\n", &|_| Ok(String::new())).is_err());
        assert!(rewrite(document, &table).is_err(), "an unknown table");
    }

    #[test]
    fn row_without_a_median_of_the_peer_is_left_out() {
        let json = |peer: &str| {
            let text = format!(
                r#"{{"m": 2, "n": 2, "k": 2, "dtype": "f32", "layout": "nn", "epilogue": "none",
                "us": 2, {peer} "peer": "p algorithm 1"}}"#
            );
            row(&Json::parse(&text).unwrap())
        };
        assert_eq!(json(r#""peer_us": null,"#), None);
        let row = json(r#""peer_us": 3,"#).unwrap();
        assert_eq!((row.shape.as_str(), row.ratio, row.peer.as_str()), ("2³", 1.5, "p"));
        assert_eq!(cells(&[row]), "1 | **1.50** | 1.50 (2³) | 1.50 (2³) | 100 %");
    }
}
