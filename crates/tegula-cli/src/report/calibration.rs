//! The report of `tegula tune --calibrate`, as a table and as JSON.

use serde::Serialize;

/// The properties of a GPU that were measured.
#[derive(Debug, Serialize)]
pub struct Properties {
    /// Megabytes (10^6) per second.
    pub memory_bandwidth: u32,
    /// Megahertz.
    pub clock: u32,
    pub power_limited_gflops: u32,
}

/// The result of a calibration.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The GPU.
    pub machine: String,
    pub driver: Option<String>,
    /// Tegula's version.
    pub version: &'static str,
    pub seconds: f64,
    /// By the properties that the driver reports.
    pub reported: Properties,
    pub measured: Properties,
    /// The mean errors of the predicted times by these properties.
    pub reported_error: f64,
    pub measured_error: f64,
    pub rows: Vec<Row>,
}

/// A kernel and its time.
#[derive(Debug, Serialize)]
pub struct Row {
    pub dtype: &'static str,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub kernel: String,
    pub us: f64,
}

impl Report {
    /// The object of `--json` as text.
    pub fn json(&self) -> String {
        // All map keys are strings, and writing to memory cannot fail.
        serde_json::to_string_pretty(self).map(|text| text + "\n").unwrap_or_default()
    }

    /// The table.
    pub fn text(&self) -> String {
        let Report { machine, version, seconds, reported, measured, reported_error, measured_error, rows, .. } = self;
        let driver = self.driver.as_ref().map_or(String::new(), |driver| format!(", driver {driver}"));
        let line = |name: &str, old: f64, new: f64, unit: &str| format!("{name:<28} {old:>10.0} {new:>10.0} {unit}\n");
        let gigabytes = |properties: &Properties| f64::from(properties.memory_bandwidth) / 1e3;
        let tflops = |properties: &Properties| f64::from(properties.power_limited_gflops) / 1e3;
        let mut text =
            format!("{machine}{driver}; Tegula {version}\n{:<28} {:>10} {:>10}\n", "", "reported", "measured");
        text += &line("memory bandwidth", gigabytes(reported), gigabytes(measured), "GB/s");
        text += &line("SM clock under load", f64::from(reported.clock), f64::from(measured.clock), "MHz");
        text += &line("16-bit power limit", tflops(reported), tflops(measured), "TFLOP/s");
        text += &line("mean error of predictions", 100.0 * reported_error, 100.0 * measured_error, "%");
        text += &format!("{} times in {seconds:.0} s", rows.len());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let of = |memory_bandwidth, clock, power_limited_gflops| Properties {
            memory_bandwidth,
            clock,
            power_limited_gflops,
        };
        let row = Row { dtype: "bf16", m: 1, n: 2, k: 3, kernel: "k".into(), us: 4.5 };
        Report {
            machine: "NVIDIA H100 PCIe".into(),
            driver: Some("580.159".into()),
            version: "1.0.0",
            seconds: 31.4,
            reported: of(2_039_000, 1555, 750_000),
            measured: of(1_950_000, 1500, 610_000),
            reported_error: 0.21,
            measured_error: 0.06,
            rows: vec![row],
        }
    }

    #[test]
    fn calibration_table_has_both_descriptions() {
        let expected = "\
NVIDIA H100 PCIe, driver 580.159; Tegula 1.0.0
                               reported   measured
memory bandwidth                   2039       1950 GB/s
SM clock under load                1555       1500 MHz
16-bit power limit                  750        610 TFLOP/s
mean error of predictions            21          6 %
1 times in 31 s";
        assert_eq!(report().text(), expected);
    }

    #[test]
    fn calibration_json_has_the_times() {
        let json: serde_json::Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!((json["measured"]["clock"].as_u64(), json["rows"][0]["us"].as_f64()), (Some(1500), Some(4.5)));
    }
}
