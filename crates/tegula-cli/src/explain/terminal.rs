//! The player on a terminal: keys in, frames out, on the alternate screen.

use std::io::{self, Write, stdout};
use std::time::Duration;
use std::{env, panic};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color as TerminalColor, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{cursor, queue};

use super::canvas::{Canvas, Color, Style};
use super::player::{Flow, Key, Playable};

/// Time between two frames while it plays without keys.
const FRAME_INTERVAL: Duration = Duration::from_millis(600);

/// Plays until the user quits.
pub fn play(mut player: impl Playable) -> io::Result<()> {
    let screen = Screen::enter()?;
    loop {
        let (wide, high) = terminal::size()?;
        screen.show(&player.draw([wide.into(), high.into()]))?;
        if player.is_automatic() && !event::poll(FRAME_INTERVAL)? {
            player.tick();
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && (is_interrupt(key) || player.key(meaning(key)) == Flow::Quit)
        {
            return Ok(());
        }
    }
}

fn is_interrupt(key: KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'd'))
}

fn meaning(key: KeyEvent) -> Key {
    let shift = key.modifiers.contains(KeyModifiers::SHIFT);
    match key.code {
        KeyCode::Right if shift => Key::NextPhase,
        KeyCode::Left if shift => Key::PreviousPhase,
        KeyCode::Right => Key::Right,
        KeyCode::Left => Key::Left,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageDown => Key::NextPhase,
        KeyCode::PageUp => Key::PreviousPhase,
        KeyCode::Home => Key::Char('g'),
        KeyCode::End => Key::Char('G'),
        KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => Key::Char(c),
        _ => Key::Other,
    }
}

/// The alternate screen, for as long as this lives.
struct Screen {
    colors: bool,
}

impl Screen {
    fn enter() -> io::Result<Screen> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |why| {
            // The message has to appear on the main screen.
            leave();
            before(why);
        }));
        leave_at_signals()?;
        terminal::enable_raw_mode()?;
        let screen = Screen { colors: env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()) };
        queue!(stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }

    fn show(&self, canvas: &Canvas) -> io::Result<()> {
        let mut out = stdout().lock();
        queue!(out, BeginSynchronizedUpdate)?;
        for (y, line) in canvas.lines().iter().enumerate() {
            queue!(out, cursor::MoveTo(0, y as u16))?;
            for (text, style) in line {
                self.begin(&mut out, *style)?;
                queue!(out, Print(text), SetAttribute(Attribute::Reset))?;
            }
        }
        queue!(out, ResetColor, EndSynchronizedUpdate)?;
        out.flush()
    }

    fn begin(&self, out: &mut impl Write, style: Style) -> io::Result<()> {
        let attributes =
            [(style.bold, Attribute::Bold), (style.underlined, Attribute::Underlined), (style.dim, Attribute::Dim)];
        for (_, attribute) in attributes.into_iter().filter(|(wanted, _)| *wanted) {
            queue!(out, SetAttribute(attribute))?;
        }
        match style.color.filter(|_| self.colors) {
            Some(color) => queue!(out, SetForegroundColor(shade(color))),
            None => Ok(()),
        }
    }
}

/// Shades safe for color-blind readers (Okabe and Ito, Color Universal Design, 2008), among the 256
/// of terminals.
fn shade(color: Color) -> TerminalColor {
    TerminalColor::AnsiValue(match color {
        Color::A => 39,
        Color::B => 214,
        Color::C => 36,
        Color::Wrong => 166,
    })
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Ends the process at SIGHUP, SIGINT and SIGTERM once the screen is restored.
#[cfg(unix)]
fn leave_at_signals() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::Builder::new().spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // No frame is drawn from here on.
            let _out = stdout().lock();
            leave();
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

/// Without signals, keys alone interrupt the player.
#[cfg(not(unix))]
fn leave_at_signals() -> io::Result<()> {
    Ok(())
}

/// Restores the screen. Errors are ignored: the process ends, or the terminal is gone.
fn leave() {
    let mut out = stdout();
    let _ = queue!(out, ResetColor, cursor::Show, LeaveAlternateScreen);
    let _ = out.flush();
    let _ = terminal::disable_raw_mode();
}
