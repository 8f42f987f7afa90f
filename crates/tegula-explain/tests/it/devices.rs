//! The page's device descriptions match the benchmark results.

use std::fs;
use std::path::Path;

use serde_json::Value;

const DEVICES: &str = include_str!("../../src/page/devices.json");

fn result(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}: not a number"))
}

/// Asserts equality up to rounding to three digits.
fn same(kept: &Value, measured: f64, what: &str) {
    assert!((number(kept) / measured - 1.0).abs() < 5e-3, "{what}: {kept} in devices.json, {measured} measured");
}

/// The TFLOP/s of a kernel for side³, from a results file.
fn speed(file: &str, kernel: &str, side: u64) -> f64 {
    let text = result(file);
    if file.ends_with(".txt") {
        let part = text.split_once(&format!("{side}³")).unwrap_or_else(|| panic!("{file}: no {side}³")).1;
        let line = part.lines().find(|line| line.ends_with(kernel)).unwrap_or_else(|| panic!("{file}: no {kernel}"));
        return line.split_whitespace().nth(1).unwrap().parse().unwrap();
    }
    let results: Value = serde_json::from_str(&text).unwrap();
    let row = results["rows"].as_array().unwrap().iter().find(|row| {
        row["kernel"] == kernel && ["m", "n", "k"].iter().all(|key| row[key] == side) && row["layout"] == "nn"
    });
    number(&row.unwrap_or_else(|| panic!("{file}: no {kernel} of {side}³"))["tflops"])
}

#[test]
fn device_speeds_match_benchmarks() {
    let devices: Value = serde_json::from_str(DEVICES).unwrap();
    for device in devices.as_array().unwrap() {
        for row in device["measured"].as_array().unwrap() {
            let (file, kernel) = (row["source"].as_str().unwrap(), row["kernel"].as_str().unwrap());
            same(&row["tflops"], speed(file, kernel, row["side"].as_u64().unwrap()), kernel);
        }
    }
}

#[test]
fn device_traffic_matches_nsight_compute() {
    let devices: Value = serde_json::from_str(DEVICES).unwrap();
    let measured: Value = serde_json::from_str(&result("benchmarks/roofs/h200-traffic.json")).unwrap();
    let traffic = &devices[0]["traffic"];
    for (kernel, row) in traffic["kernels"].as_object().unwrap() {
        let expected =
            measured["rows"].as_array().unwrap().iter().find(|row| row["kernel"] == **kernel).expect("a row");
        for key in ["l1_sectors", "l2_sectors", "dram_bytes"] {
            same(&row[key], number(&expected[key]), &format!("{kernel}, {key}"));
        }
        let side = traffic["side"].as_u64().unwrap();
        same(&row["tflops"], speed("benchmarks/roofs/h200-speeds.json", kernel, side), kernel);
    }
}

/// Ceilings are those of the roofs program; for matrix instructions, those of the benchmarks.
#[test]
fn device_ceilings_match_benchmarks() {
    let devices: Value = serde_json::from_str(DEVICES).unwrap();
    let (bytes, rates) = (&devices[0]["bytes"], &devices[0]["multiply_adds"]);
    let benchmark: Value = serde_json::from_str(&result("benchmarks/h200-f32.json")).unwrap();
    same(&rates["f64"]["DMMA"], ceiling(&benchmark, "DMMA"), "DMMA");
    let roofs: Value = serde_json::from_str(&result("benchmarks/roofs/h200.json")).unwrap();
    let rows = [("f32", "FFMA"), ("f64", "DFMA"), ("i32", "IMAD")];
    for level in ["dram", "l2", "shared"] {
        same(&bytes[level], number(&roofs[format!("{level}_bytes")]), level);
    }
    rows.iter().for_each(|(ty, of)| same(&rates[ty][of], number(&roofs[format!("{ty}_fma")]), of));
}

fn ceiling(benchmark: &Value, instruction: &str) -> f64 {
    let ceilings = benchmark["ceilings"].as_array().unwrap();
    number(&ceilings.iter().find(|row| row["instruction"] == instruction).unwrap()["tflops"]) * 1e12 / 2.0
}
