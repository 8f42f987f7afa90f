//! `printf` and `assert` of a kernel.

use std::fmt::Write;

use tegula_core::diagnostic::FindingKind;

use crate::address::locate;
use crate::program::Slot;
use crate::report::Report;
use crate::run::{Run, lanes};

/// Maximum number of bytes that a block prints, and of a string.
const MAX_OUTPUT: usize = 1 << 18;
const MAX_STRING: u64 = 1 << 12;

/// The sequence of `printf` arguments.
trait Values {
    /// The next argument of 4 or 8 bytes.
    fn next(&mut self, bytes: u32) -> u64;
    fn string(&mut self, address: u64) -> String;
}

/// The arguments of a lane, as the compiler stores them in memory.
struct Stored<'a, 'r, 'm> {
    run: &'a Run<'r, 'm>,
    lane: usize,
    address: u64,
}

impl Values for Stored<'_, '_, '_> {
    fn next(&mut self, bytes: u32) -> u64 {
        let address = self.address.next_multiple_of(bytes.into());
        self.address = address + u64::from(bytes);
        self.run.read_generic(self.lane, address, bytes)
    }

    fn string(&mut self, address: u64) -> String {
        self.run.read_string(self.lane, address)
    }
}

impl Run<'_, '_> {
    /// Reads memory without checks; 0 where it is out of bounds.
    fn read_generic(&self, lane: usize, address: u64, bytes: u32) -> u64 {
        let location = locate(None, address, self.machine.allocations.len() as u32);
        if self.is_in_bounds(location, bytes) { self.fetch(location, lane, bytes) } else { 0 }
    }

    fn read_string(&self, lane: usize, address: u64) -> String {
        let bytes = (0..MAX_STRING).map(|at| self.read_generic(lane, address.wrapping_add(at), 1) as u8);
        String::from_utf8_lossy(&bytes.take_while(|&byte| byte != 0).collect::<Vec<_>>()).into_owned()
    }

    pub fn print(&mut self, frame: u32, format: Slot, arguments: Slot, dst: Option<Slot>) {
        for lane in lanes(self.active) {
            let format = self.read_string(lane, self.slot_bits(frame, format, lane));
            let address = self.slot_bits(frame, arguments, lane);
            let text = format_values(&format, &mut Stored { run: self, lane, address });
            let thread = self.machine.describe_thread(self.thread(lane));
            let block = self.machine.describe_block(self.block.id);
            let output = self.partial.output.entry(self.block.linear).or_default();
            if output.len() < MAX_OUTPUT {
                for line in text.lines() {
                    let _ = writeln!(output, "{block}, {thread}: {line}");
                }
                if output.len() >= MAX_OUTPUT {
                    output.push_str("… (output of the block truncated)\n");
                }
            }
            if let Some(Slot::Frame(offset, bytes)) = dst {
                self.warp.local[lane].store((frame + offset) as usize, bytes.min(8), 1);
            }
        }
    }

    pub fn assert_fail(&mut self, frame: u32, arguments: &[Slot]) {
        let lane = self.active.trailing_zeros() as usize;
        let text = |at: usize| {
            arguments.get(at).map_or(String::new(), |&slot| self.read_string(lane, self.slot_bits(frame, slot, lane)))
        };
        let (condition, function) = (text(0), text(3));
        let message = format!("assertion `{condition}` of {function} fails");
        self.report(Report::new(FindingKind::Assertion, message).lanes(self.active));
        (self.partial.stopped, self.partial.completed) = (true, false);
    }
}

/// A conversion of a format string.
#[derive(Default)]
struct Conversion {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    /// Whether an integer has 64 bits.
    long: bool,
}

/// Formats values as `printf` of C does.
fn format_values(format: &str, values: &mut dyn Values) -> String {
    let mut text = String::new();
    let mut rest = format.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let mut conversion = Conversion::default();
        while let Some(flag) = rest.next_if(|c| "-0+ #".contains(*c)) {
            match flag {
                '-' => conversion.left = true,
                '0' => conversion.zero = true,
                '+' => conversion.plus = true,
                ' ' => conversion.space = true,
                _ => conversion.alternate = true,
            }
        }
        let number = |rest: &mut std::iter::Peekable<std::str::Chars<'_>>, values: &mut dyn Values| {
            if rest.next_if_eq(&'*').is_some() {
                return values.next(4) as usize & 0xfff;
            }
            let mut number = 0usize;
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                number = (number * 10 + digit as usize - '0' as usize).min(0xfff);
            }
            number
        };
        conversion.width = number(&mut rest, values);
        if rest.next_if_eq(&'.').is_some() {
            conversion.precision = Some(number(&mut rest, values));
        }
        while let Some(length) = rest.next_if(|c| "hlLqjzt".contains(*c)) {
            conversion.long |= "lLqjzt".contains(length);
        }
        let Some(kind) = rest.next() else { break };
        if kind == '%' {
            text.push('%');
        } else {
            text.push_str(&conversion.apply(kind, values));
        }
    }
    text
}

impl Conversion {
    fn apply(&self, kind: char, values: &mut dyn Values) -> String {
        let integer = |values: &mut dyn Values| {
            if self.long { values.next(8) } else { values.next(4) }
        };
        match kind {
            'd' | 'i' => {
                let bits = integer(values);
                let value = if self.long { bits as i64 } else { i64::from(bits as u32 as i32) };
                self.pad(self.sign(value < 0), self.digits(value.unsigned_abs().to_string()), true)
            }
            'u' => self.pad("", self.digits(integer(values).to_string()), true),
            'x' => {
                self.pad(if self.alternate { "0x" } else { "" }, self.digits(format!("{:x}", integer(values))), true)
            }
            'X' => {
                self.pad(if self.alternate { "0X" } else { "" }, self.digits(format!("{:X}", integer(values))), true)
            }
            'o' => self.pad("", self.digits(format!("{:o}", integer(values))), true),
            'p' => self.pad("0x", format!("{:x}", values.next(8)), false),
            'c' => {
                let c = char::from(values.next(4) as u8);
                self.pad("", c.to_string(), false)
            }
            's' => {
                let address = values.next(8);
                let text = values.string(address);
                self.pad("", text.chars().take(self.precision.unwrap_or(usize::MAX)).collect(), false)
            }
            'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A' => self.float(kind, f64::from_bits(values.next(8))),
            other => format!("%{other}"),
        }
    }

    fn sign(&self, negative: bool) -> &'static str {
        match () {
            () if negative => "-",
            () if self.plus => "+",
            () if self.space => " ",
            () => "",
        }
    }

    /// The digits of an integer, with leading zeros up to the precision.
    fn digits(&self, digits: String) -> String {
        format!("{digits:0>width$}", width = self.precision.unwrap_or(0))
    }

    fn float(&self, kind: char, value: f64) -> String {
        let sign = self.sign(value.is_sign_negative());
        let (value, upper) = (value.abs(), kind.is_ascii_uppercase());
        let case = |text: String| if upper { text.to_uppercase() } else { text };
        if !value.is_finite() {
            let text = if value.is_nan() { "nan" } else { "inf" };
            return self.pad(sign, case(text.into()), false);
        }
        let precision = self.precision.unwrap_or(6);
        let text = match kind.to_ascii_lowercase() {
            'f' => format!("{value:.precision$}"),
            'e' => scientific(value, precision),
            _ => general(value, precision.max(1)),
        };
        self.pad(sign, case(text), true)
    }

    fn pad(&self, sign: &str, text: String, number: bool) -> String {
        let width = self.width.saturating_sub(sign.len());
        match () {
            () if self.left => format!("{sign}{text:<width$}"),
            () if self.zero && number => format!("{sign}{text:0>width$}"),
            () => format!("{:>width$}", format!("{sign}{text}"), width = self.width),
        }
    }
}

/// `%e`: an exponent of two digits or more.
fn scientific(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// `%g`: the shorter form, without trailing zeros.
fn general(value: f64, precision: usize) -> String {
    let text = format!("{value:.0$e}", precision - 1);
    let exponent: i32 = text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let trim = |text: String| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    };
    if exponent < -4 || exponent >= precision as i32 {
        let text = scientific(value, precision - 1);
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, ""));
        return format!("{}e{exponent}", trim(mantissa.into()));
    }
    trim(format!("{value:.0$}", (precision as i32 - 1 - exponent).max(0) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct List(Vec<u64>);

    impl Values for List {
        fn next(&mut self, _: u32) -> u64 {
            self.0.remove(0)
        }

        fn string(&mut self, _: u64) -> String {
            "text".into()
        }
    }

    fn print(format: &str, values: &[u64]) -> String {
        format_values(format, &mut List(values.to_vec()))
    }

    #[test]
    fn format_values_follow_c() {
        assert_eq!(print("%d|%5d|%-5d|%05d", &[!0, 42, 42, 42]), "-1|   42|42   |00042");
        assert_eq!(print("%u %lld %x %#X %c%%", &[0xffff_ffff, !0, 255, 255, 65]), "4294967295 -1 ff 0XFF A%");
        assert_eq!(
            print("%f %.2f %8.3f", &[1.5f64.to_bits(), 2f64.to_bits(), (-3.25f64).to_bits()]),
            "1.500000 2.00   -3.250"
        );
        assert_eq!(
            print("%e %g %g %g", &[12345.678f64.to_bits(), 0.5f64.to_bits(), 1e10f64.to_bits(), 100000f64.to_bits()]),
            "1.234568e+04 0.5 1e+10 100000"
        );
        assert_eq!(print("[%s] %*d", &[0, 4, 7]), "[text]    7");
    }
}
