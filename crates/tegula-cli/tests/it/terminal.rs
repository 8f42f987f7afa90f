//! The program in a pseudo-terminal with an emulated screen.
#![cfg(unix)]

use std::io::Read;

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use vt100::Parser;

/// A session at a terminal.
struct Session {
    /// The screen after each piece of output.
    screens: Vec<String>,
    /// Whether a line wrapped at the right edge.
    wrapped: bool,
    /// The raw output.
    raw: String,
}

impl Session {
    /// Runs a shell command, with the program as `$T`.
    fn run(line: &str, [columns, rows]: [u16; 2], environment: &[(&str, &str)]) -> Session {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new("sh");
        command.args(["-c", line]);
        // A terminal of a build service (CI) has colors whatever its kind.
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

    /// The screens with a percentage.
    fn shares(&self) -> Vec<&str> {
        self.screens.iter().map(String::as_str).filter(|screen| screen.contains('%')).collect()
    }
}

const USUAL: [u16; 2] = [80, 24];

/// A check of `seeds` seeds, without its report.
fn check(seeds: u32) -> String {
    format!("$T check K6 --m 64 --n 64 --k 64 --seeds {seeds} --json >/dev/null")
}

/// A check long enough for its percentage to be drawn on any machine.
fn long_check(size: [u16; 2], environment: &[(&str, &str)]) -> Session {
    let sessions = (2..14).map(|power| Session::run(&check(1 << power), size, environment));
    let mut sessions = sessions.skip_while(|session| session.shares().is_empty());
    sessions.next().expect("no bar was drawn, however long the work")
}

#[test]
fn bar_is_drawn_and_erased() {
    let session = long_check(USUAL, &[]);
    let shares = session.shares();
    assert!(shares.iter().all(|screen| screen.starts_with("checking tiled_f32_32 ")), "{shares:?}");
    assert!(shares.iter().all(|screen| screen.contains("FLOP/s") && screen.ends_with(" left")), "{shares:?}");
    assert!(session.screens.iter().all(|screen| screen.trim_end().lines().count() <= 1), "{:?}", session.screens);
    assert!(!session.wrapped);
    assert_eq!(session.last(), "");
}

#[test]
fn bar_on_narrow_terminal_is_one_line() {
    for columns in [20, 30, 46, 79] {
        let session = long_check([columns, 10], &[]);
        assert!(session.screens.iter().all(|screen| screen.trim_end().lines().count() <= 1), "{:?}", session.screens);
        assert!(!session.wrapped, "{columns}: {:?}", session.screens);
        assert_eq!(session.last(), "");
    }
}

#[test]
fn progress_never_decreases() {
    let session = long_check(USUAL, &[]);
    let share = |screen: &&str| screen.split('%').next()?.rsplit(' ').next()?.parse::<u32>().ok();
    let shares: Vec<_> = session.shares().iter().filter_map(share).collect();
    assert!(!shares.is_empty() && shares.is_sorted() && shares.iter().all(|&share| share <= 100), "{shares:?}");
}

#[test]
fn terminal_has_only_the_report_at_the_end() {
    let line = "$T check K6 --m 64 --n 64 --k 64 --seeds 8";
    let session = Session::run(line, USUAL, &[]);
    let report = Session::run(&format!("{line} --quiet | cat"), USUAL, &[]);
    assert_eq!(session.last(), report.last());
    assert!(report.last().starts_with("tiled_f32_32, 64×64"));
}

#[test]
fn bar_is_off_when_quiet_or_not_a_terminal() {
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
fn bar_respects_no_color() {
    let colored = |session: &Session| session.raw.contains("\x1b[36m");
    assert!(colored(&long_check(USUAL, &[])));
    let session = long_check(USUAL, &[("NO_COLOR", "1")]);
    assert!(!colored(&session), "{:?}", session.raw);
}

#[test]
fn verbose_log_replaces_the_bar() {
    let session = Session::run(&format!("{} -v", check(8)), [200, 24], &[]);
    assert!(session.last().contains("INFO") && session.last().contains("checking tiled_f32_32"), "{}", session.last());
    assert!(session.shares().is_empty() && session.raw.contains('\x1b'));
    let session = Session::run(&format!("{} -v", check(1)), [200, 24], &[("NO_COLOR", "1")]);
    assert!(session.last().contains("INFO") && !session.raw.contains('\x1b'), "{:?}", session.raw);
    let session = Session::run(&format!("{} -v", check(1)), [200, 24], &[("TEGULA_LOG", "off")]);
    assert_eq!(session.raw, "");
}

#[test]
fn errors_and_help_have_colors_on_a_terminal_only() {
    for (line, expected) in [("$T chek", "error: unrecognized subcommand"), ("$T --help", "Usage: tegula")] {
        let colored = Session::run(line, [120, 50], &[]);
        assert!(colored.raw.contains('\x1b') && colored.last().contains(expected), "{:?}", colored.raw);
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
fn control_characters_in_file_names_are_escaped() {
    let session = Session::run("$T mul \"$(printf 'a\\nb\\033[2J')\" x", USUAL, &[("NO_COLOR", "1")]);
    assert_eq!(session.last(), "error: a\\nb\\u{1b}[2J: file not found");
}

/// An interactive session.
struct Live {
    pty: Box<dyn portable_pty::MasterPty + Send>,
    keys: Box<dyn std::io::Write + Send>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
    parser: std::sync::Arc<std::sync::Mutex<Parser>>,
}

impl Live {
    fn start(line: &str, [columns, rows]: [u16; 2], environment: &[(&str, &str)]) -> Live {
        let pty =
            native_pty_system().openpty(PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }).unwrap();
        let mut command = CommandBuilder::new("sh");
        command.args(["-c", line]);
        command.env("T", env!("CARGO_BIN_EXE_tegula"));
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        environment.iter().for_each(|(name, value)| command.env(name, value));
        let child = pty.slave.spawn_command(command).unwrap();
        drop(pty.slave);
        let parser = std::sync::Arc::new(std::sync::Mutex::new(Parser::new(rows, columns, 0)));
        let (mut reader, shown) = (pty.master.try_clone_reader().unwrap(), parser.clone());
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(len @ 1..) = reader.read(&mut piece) {
                shown.lock().unwrap().process(&piece[..len]);
            }
        });
        let keys = pty.master.take_writer().unwrap();
        Live { pty: pty.master, keys, child, parser }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn resize(&mut self, [columns, rows]: [u16; 2]) {
        self.parser.lock().unwrap().screen_mut().set_size(rows, columns);
        self.pty.resize(PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 }).unwrap();
    }

    fn screen(&self) -> String {
        self.parser.lock().unwrap().screen().contents()
    }

    /// The screen once it contains `says` and is stable; output comes in pieces.
    fn until(&self, says: &str) -> String {
        let mut before = String::new();
        for _ in 0..600 {
            let screen = self.screen();
            if screen.contains(says) && screen == before {
                return screen;
            }
            before = screen;
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{says:?} never came:\n{}", self.screen());
    }
}

#[test]
fn player_steps_through_a_product() {
    let mut live = Live::start("echo earlier; $T explain; echo after $?; sleep 5", USUAL, &[]);
    let start = live.until("Not started");
    assert!(!start.contains("earlier") && start.contains("q quit"), "{start}");
    live.press("\x1b[C");
    live.until("step 0 of 2, phase 1 of 10: load, tick 1 of 4");
    live.press("n ");
    live.until("tick 3 of 4");
    live.press("\x1b[D");
    let back = live.until("tick 2 of 4");
    assert!(back.contains("tile_a") && back.contains("A[0..2, 0..2] → tile_a"), "{back}");
    live.press("]]]");
    let multiplied = live.until("phase 3 of 10: multiply");
    assert!(multiplied.contains("c00 = 1·1 + 2·5 + a02·b20 + a03·b30"), "{multiplied}");
    assert!(multiplied.contains("= 11 so far") && multiplied.contains("46)"), "{multiplied}");
    live.press("[");
    live.until("phase 2 of 10: wait");
    live.press("t\x1b[C\x1b[Bt");
    live.until("thread 1,1");
    live.press("h");
    live.until("thread 0,1");
    live.press("b");
    live.until("block 1,0 of 2×2");
    live.press("v");
    live.until("a11");
    live.press("?");
    live.until("Any key returns.");
    live.press("xG");
    let end = live.until("phase 10 of 10: store");
    assert!(end.contains(", written"), "{end}");
    live.resize([40, 12]);
    live.until("needs 60×18");
    live.resize([60, 18]);
    let small = live.until("? help q quit");
    assert!(small.contains("C 4×4") && small.contains("written"), "{small}");
    live.press("q");
    let after = live.until("after 0");
    assert!(after.contains("earlier") && !after.contains("step"), "{after}");
    let parser = live.parser.lock().unwrap();
    assert!(!parser.screen().alternate_screen() && !parser.screen().hide_cursor());
    drop(parser);
    live.child.kill().unwrap();
}

#[test]
fn interrupt_ends_the_player_and_restores_the_screen() {
    let mut live =
        Live::start("echo earlier; $T explain --m 40 --n 30 --k 20; stty -a | grep -o ' echo '; sleep 5", USUAL, &[]);
    let start = live.until("Not started");
    assert!(start.contains("C 40×30") && start.contains('⋮') && start.contains('…'), "{start}");
    live.press("\x03");
    let after = live.until("echo");
    assert!(after.contains("earlier") && !live.parser.lock().unwrap().screen().alternate_screen());
    live.child.kill().unwrap();
}

#[test]
fn signal_ends_the_player_and_restores_the_screen() {
    for (signal, status) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let player = "sh -c 'echo $$ >\"$PID\"; exec \"$T\" explain'";
        let line = format!("echo earlier; {player}; echo after $?; stty -a | grep -o ' echo '; sleep 5");
        let mut live = Live::start(&line, USUAL, &[("PID", file.to_str().unwrap())]);
        live.until("Not started");
        let pid = std::fs::read_to_string(&file).unwrap();
        let sent = std::process::Command::new("kill").args([format!("-{signal}").as_str(), pid.trim()]).status();
        assert!(sent.unwrap().success());
        let after = live.until(&format!("after {status}"));
        assert!(after.contains("earlier") && !after.contains("Not started"), "{signal}: {after}");
        live.until(" echo ");
        let parser = live.parser.lock().unwrap();
        assert!(!parser.screen().alternate_screen() && !parser.screen().hide_cursor(), "{signal}");
        drop(parser);
        live.child.kill().unwrap();
    }
}

#[test]
fn player_of_a_file_steps_to_barriers_and_races() {
    let reverse = include_str!("../reverse.ptx");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("reverse.ptx"), reverse).unwrap();
    std::fs::write(folder.path().join("race.ptx"), reverse.replace("bar.sync 0;", "")).unwrap();
    let start = |file: &str| {
        let options = "--grid 1 --block 64 --arg x=range:f32[64] --arg y=out:f32[64]";
        let line = format!("cd \"$F\"; echo earlier; $T explain {file} {options}; echo after $?; sleep 5");
        let live = Live::start(&line, USUAL, &[("F", folder.path().to_str().unwrap())]);
        let first = live.until("Not started");
        assert!(first.contains("before the first step") && !first.contains("earlier"), "{first}");
        live
    };
    let mut live = start("race.ptx");
    live.press("\x1b[C");
    live.until("step 0 of 8, line 19");
    live.press("ee");
    let race = live.until("race: thread 32 of block 0 writes tile[32]");
    let marked: Vec<&str> = race.lines().filter(|line| line.starts_with("!   ")).collect();
    assert!(matches!(marked[..], [one, other] if one.contains("st.shared") && other.contains("ld.shared")), "{race}");
    live.press("?");
    live.until("Any key returns.");
    live.press("xw");
    live.until("only warp 0");
    live.press("g");
    live.until("before the first step");
    live.resize([40, 12]);
    live.until("needs 60×18");
    live.resize([60, 18]);
    live.until("? help q quit");
    live.press("q");
    let after = live.until("after 0");
    assert!(after.contains("earlier") && !after.contains("step"), "{after}");
    assert!(!live.parser.lock().unwrap().screen().alternate_screen());
    live.child.kill().unwrap();
    let mut live = start("reverse.ptx");
    live.press("]");
    live.until("all 64 threads have arrived");
    live.press("G");
    let end = live.until("step 9 of 10, line 26");
    assert!(end.contains("stores  y[32] to y[63]") && !end.contains("race"), "{end}");
    live.press("q");
    live.until("after 0");
    live.child.kill().unwrap();
}

/// Threads and the element are named and marked at the tick of the finding.
#[test]
fn player_marks_findings_at_their_tick() {
    let race = "race: block [0, 0, 0]: thread";
    let cases = [
        ("--plant missing-first-barrier", race, "reads tile_a[0, 0] and thread [0, 0, 0] writes it", 3),
        ("--plant missing-second-barrier", race, "writes tile_a[0, 0] and thread [1, 0, 0] reads it", 3),
        ("--plant no-guards --m 3 --n 3 --k 3", "out-of-bounds: block [0, 0, 0]", "(0, 3) of a, which is 3×3", 1),
        ("--plant extra-barrier", "redundant-barrier:", "no access needs this barrier", 0),
    ];
    for (line, what, who, marks) in cases {
        let mut live = Live::start(&format!("$T explain {line}"), USUAL, &[("NO_COLOR", "1")]);
        live.until("Not started");
        let words = |screen: &str| screen.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut place = 0;
        let shown = loop {
            let screen = live.screen();
            if screen.contains(what) {
                break live.until(what);
            }
            place += 1;
            assert!(place < 100, "{line}: {screen}");
            live.press("n");
            std::thread::sleep(std::time::Duration::from_millis(60));
        };
        assert!(words(&shown).contains(who), "{line}: {shown}");
        // Below the description: one mark before and one after each.
        let marked = shown.lines().skip(4).collect::<String>().matches('!').count();
        assert_eq!(marked, 2 * marks, "{line}: {shown}");
        live.press("q");
        live.child.wait().unwrap();
    }
}

#[test]
fn player_without_colors_marks_tiles() {
    let mut live = Live::start("$T explain", USUAL, &[("NO_COLOR", "1")]);
    live.until("Not started");
    live.press("]");
    let loaded = live.until("phase 1 of 10: load, tick 4 of 4");
    assert!(loaded.contains("[  2]") && loaded.contains("{  6}") && loaded.contains('<'), "{loaded}");
    let parser = live.parser.lock().unwrap();
    let (rows, columns) = parser.screen().size();
    let colored = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))).any(|(row, column)| {
        parser.screen().cell(row, column).is_some_and(|cell| cell.fgcolor() != vt100::Color::Default)
    });
    assert!(!colored);
    drop(parser);
    live.press("q");
    live.child.wait().unwrap();
}

#[test]
fn player_narrows_cells_where_columns_do_not_fit() {
    let mut live = Live::start("$T explain --m 8 --n 8 --k 8", USUAL, &[("NO_COLOR", "1")]);
    let start = live.until("Not started");
    // All of A's first row, 1 to 8, and more than half of the columns of B, whose first row is the
    // same.
    let row = start.lines().find(|line| line.trim_start().starts_with("1 ") && line.contains(" 8 "));
    assert!(row.is_some(), "{start}");
    let cols = start.lines().find_map(|line| Some(line.split_once("cols ")?.1.split(' ').next()?.to_owned()));
    let [from, to] = [0, 1].map(|at| cols.as_deref().unwrap().split("..").nth(at).unwrap().parse::<u32>().unwrap());
    assert!(to - from >= 4, "{start}");
    live.press("q");
    live.child.wait().unwrap();
}

#[test]
fn player_counts_findings_and_warns_at_the_end() {
    let mut live = Live::start("$T explain --plant missing-first-barrier", USUAL, &[("NO_COLOR", "1")]);
    let start = live.until("Not started");
    assert!(start.lines().nth(1).unwrap().ends_with(" (race)"), "{start}");
    live.press("G");
    let end = live.until("The result cannot be trusted");
    assert!(end.lines().nth(1).unwrap().ends_with(" (race)"), "{end}");
    live.press("q");
    live.child.wait().unwrap();
    let mut sound = Live::start("$T explain", USUAL, &[]);
    let start = sound.until("Not started");
    assert!(!start.contains("error") && !start.contains("note"), "{start}");
    sound.press("G");
    assert!(!sound.until(", written").contains("cannot be trusted"));
    sound.press("q");
    sound.child.wait().unwrap();
}
