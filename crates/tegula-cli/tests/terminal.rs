//! What a person sees: the program in a pseudo-terminal, whose screen is drawn as a terminal would.
#![cfg(unix)]

use std::io::Read;

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use vt100::Parser;

/// A session at a terminal.
struct Session {
    /// What was on the screen after each piece of output.
    screens: Vec<String>,
    /// No line went over the right edge.
    wrapped: bool,
    /// All that was written.
    raw: String,
}

impl Session {
    /// Runs a line of a shell in which `$T` is the program.
    fn run(line: &str, [columns, rows]: [u16; 2], environment: &[(&str, &str)]) -> Session {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new("sh");
        command.args(["-c", line]);
        // A terminal of a build service (CI) has colours whatever its kind.
        for variable in ["CI", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TEGULA_LOG", "COLUMNS"] {
            command.env_remove(variable);
        }
        command.env("T", env!("CARGO_BIN_EXE_tegula"));
        command.env("TERM", "xterm-256color");
        command.env("TEGULA_PROGRESS_DELAY", "0");
        environment.iter().for_each(|(name, value)| command.env(name, value));
        let mut child = pty.slave.spawn_command(command).unwrap();
        drop(pty.slave);
        let mut reader = pty.master.try_clone_reader().unwrap();
        let (mut parser, mut raw, mut screens, mut wrapped) =
            (Parser::new(rows, columns, 0), Vec::new(), vec![], false);
        let mut piece = [0; 4096];
        // Linux says with an error that the other side is closed.
        while let Ok(len @ 1..) = reader.read(&mut piece) {
            parser.process(&piece[..len]);
            raw.extend(&piece[..len]);
            screens.push(parser.screen().contents());
            wrapped |= (0..rows).any(|row| parser.screen().row_wrapped(row));
        }
        child.wait().unwrap();
        Session { screens, wrapped, raw: String::from_utf8(raw).unwrap() }
    }

    fn last(&self) -> &str {
        self.screens.last().map_or("", String::as_str)
    }

    /// The screens with a share of the work on them.
    fn shares(&self) -> Vec<&str> {
        self.screens.iter().map(String::as_str).filter(|screen| screen.contains('%')).collect()
    }
}

const USUAL: [u16; 2] = [80, 24];

/// A check of so many seeds, its report thrown away.
fn check(seeds: u32) -> String {
    format!("$T check K6 --m 64 --n 64 --k 64 --seeds {seeds} --json >/dev/null")
}

/// A check that takes long enough for its share to be drawn, on a machine of whatever speed.
fn long_check(size: [u16; 2], environment: &[(&str, &str)]) -> Session {
    let sessions = (2..14).map(|power| Session::run(&check(1 << power), size, environment));
    let mut sessions = sessions.skip_while(|session| session.shares().is_empty());
    sessions.next().expect("no bar was drawn, however long the work")
}

#[test]
fn a_bar_is_drawn_and_cleaned_away() {
    let session = long_check(USUAL, &[]);
    let shares = session.shares();
    assert!(shares.iter().all(|screen| screen.starts_with("checking tiled_f32_32 ")), "{shares:?}");
    assert!(shares.iter().all(|screen| screen.contains("FLOP/s") && screen.ends_with(" left")), "{shares:?}");
    assert!(session.screens.iter().all(|screen| screen.trim_end().lines().count() <= 1), "{:?}", session.screens);
    assert!(!session.wrapped);
    assert_eq!(session.last(), "");
}

#[test]
fn a_narrow_terminal_has_a_bar_of_one_line() {
    for columns in [20, 30, 46, 79] {
        let session = long_check([columns, 10], &[]);
        assert!(session.screens.iter().all(|screen| screen.trim_end().lines().count() <= 1), "{:?}", session.screens);
        assert!(!session.wrapped, "{columns}: {:?}", session.screens);
        assert_eq!(session.last(), "");
    }
}

#[test]
fn the_share_never_shrinks() {
    let session = long_check(USUAL, &[]);
    let share = |screen: &&str| screen.split('%').next()?.rsplit(' ').next()?.parse::<u32>().ok();
    let shares: Vec<_> = session.shares().iter().filter_map(share).collect();
    assert!(!shares.is_empty() && shares.is_sorted() && shares.iter().all(|&share| share <= 100), "{shares:?}");
}

#[test]
fn nothing_but_the_report_is_left() {
    let line = "$T check K6 --m 64 --n 64 --k 64 --seeds 8";
    let session = Session::run(line, USUAL, &[]);
    let report = Session::run(&format!("{line} --quiet | cat"), USUAL, &[]);
    assert_eq!(session.last(), report.last());
    assert!(report.last().starts_with("tiled_f32_32, 64×64"));
}

#[test]
fn no_bar_where_nobody_wants_one() {
    // A bar would be drawn at once.
    let line = check(4);
    let silent = [
        (format!("{line} -q"), vec![]),
        (line.clone(), vec![("TERM", "dumb")]),
        (line.clone(), vec![("TERM", "")]),
        (format!("({line}) 2>&1 | cat"), vec![]),
        (line.clone(), vec![("TEGULA_PROGRESS_DELAY", "1000")]),
    ];
    for (line, environment) in silent {
        let session = Session::run(&line, USUAL, &environment);
        assert_eq!(session.raw, "", "{line}, {environment:?}");
    }
}

#[test]
fn a_bar_without_colours() {
    let coloured = |session: &Session| session.raw.contains("\x1b[36m");
    assert!(coloured(&long_check(USUAL, &[])));
    let session = long_check(USUAL, &[("NO_COLOR", "1")]);
    assert!(!coloured(&session), "{:?}", session.raw);
}

#[test]
fn verbose_lines_take_the_bar_s_place() {
    let session = Session::run(&format!("{} -v", check(8)), [200, 24], &[]);
    assert!(session.last().contains("INFO") && session.last().contains("checking tiled_f32_32"), "{}", session.last());
    assert!(session.shares().is_empty() && session.raw.contains('\x1b'));
    let session = Session::run(&format!("{} -v", check(1)), [200, 24], &[("NO_COLOR", "1")]);
    assert!(session.last().contains("INFO") && !session.raw.contains('\x1b'), "{:?}", session.raw);
    let session = Session::run(&format!("{} -v", check(1)), [200, 24], &[("TEGULA_LOG", "off")]);
    assert_eq!(session.raw, "");
}

#[test]
fn errors_and_help_have_colours_on_a_terminal_only() {
    for (line, expected) in [("$T chek", "error: unrecognized subcommand"), ("$T --help", "Usage: tegula")] {
        let coloured = Session::run(line, [120, 50], &[]);
        assert!(coloured.raw.contains('\x1b') && coloured.last().contains(expected), "{:?}", coloured.raw);
        let plain = [("NO_COLOR", "1"), ("TERM", "dumb")];
        for environment in plain {
            let session = Session::run(line, [120, 50], &[environment]);
            assert!(!session.raw.contains('\x1b') && session.last().contains(expected), "{:?}", session.raw);
        }
        let piped = Session::run(&format!("{line} 2>&1 | cat"), [120, 50], &[]);
        assert!(!piped.raw.contains('\x1b') && piped.last().contains(expected), "{:?}", piped.raw);
    }
}

#[test]
fn a_file_s_name_cannot_reach_the_terminal() {
    let session = Session::run("$T mul \"$(printf 'a\\nb\\033[2J')\" x", USUAL, &[("NO_COLOR", "1")]);
    assert_eq!(session.last(), "error: a\\nb\\u{1b}[2J: there is no such file");
}
