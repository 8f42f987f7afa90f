//! The player on a terminal: keys in, pictures out. What was on the screen before is there again afterwards.

use std::io::{self, Write, stdout};
use std::time::Duration;
use std::{env, panic};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::style::{Attribute, Color, Print, ResetColor, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{cursor, queue};

use super::canvas::{Canvas, Colour, Style};
use super::draw::draw;
use super::player::{Key, Player, Then};

/// Time between two pictures when it goes on by itself.
const BEAT: Duration = Duration::from_millis(600);

/// Plays until somebody quits.
pub fn play(mut player: Player) -> io::Result<()> {
    let screen = Screen::enter()?;
    loop {
        let (wide, high) = terminal::size()?;
        screen.show(&draw(&player, [wide.into(), high.into()]))?;
        if player.auto && !event::poll(BEAT)? {
            player.tick();
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && (is_interrupt(key) || player.key(meaning(key)) == Then::Quit)
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
        KeyCode::Right if shift => Key::NextAct,
        KeyCode::Left if shift => Key::LastAct,
        KeyCode::Right => Key::Right,
        KeyCode::Left => Key::Left,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageDown => Key::NextAct,
        KeyCode::PageUp => Key::LastAct,
        KeyCode::Home => Key::Char('g'),
        KeyCode::End => Key::Char('G'),
        KeyCode::Char(c) if !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => Key::Char(c),
        _ => Key::Other,
    }
}

/// The alternate screen, for as long as this lives.
struct Screen {
    colours: bool,
}

impl Screen {
    fn enter() -> io::Result<Screen> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |why| {
            // So that the message is read on the screen that stays.
            leave();
            before(why);
        }));
        leave_at_signals()?;
        terminal::enable_raw_mode()?;
        let screen = Screen { colours: env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()) };
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
        match style.colour.filter(|_| self.colours) {
            Some(colour) => queue!(out, SetForegroundColor(shade(colour))),
            None => Ok(()),
        }
    }
}

/// Shades that people tell apart whatever colours they see (Okabe and Ito, Color Universal Design, 2008), among the 256 of terminals.
fn shade(colour: Colour) -> Color {
    Color::AnsiValue(match colour {
        Colour::A => 39,
        Colour::B => 214,
        Colour::C => 36,
        Colour::Wrong => 166,
    })
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// A signal that asks the process to end does so when the screen is given back.
#[cfg(unix)]
fn leave_at_signals() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    use signal_hook::low_level::emulate_default_handler;

    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::Builder::new().spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // So that no picture is drawn any more.
            let _out = stdout().lock();
            leave();
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

/// Keys interrupt the player; no signal ends it.
#[cfg(not(unix))]
fn leave_at_signals() -> io::Result<()> {
    Ok(())
}

/// Gives the screen back. What cannot be written then is nobody's concern any more.
fn leave() {
    let mut out = stdout();
    let _ = queue!(out, ResetColor, cursor::Show, LeaveAlternateScreen);
    let _ = out.flush();
    let _ = terminal::disable_raw_mode();
}
