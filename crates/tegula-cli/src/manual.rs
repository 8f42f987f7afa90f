//! `tegula completions` and `tegula man`: shell completions and manual pages, generated from the
//! grammar of the command line.

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::args::Cli;

/// The completion script of a shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tegula", &mut script);
    script
}

/// The manual page of a command, or of the program, in roff.
pub fn page(command: Option<&str>) -> io::Result<Vec<u8>> {
    let mut program = Cli::command();
    program.build();
    let page = command.and_then(|name| program.find_subcommand(name)).unwrap_or(&program).clone();
    let after = page.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_commands = page.has_subcommands();
    let man = Man::new(page.after_help(""))
        .section("1")
        .date(" ")
        .manual("Tegula")
        .source(concat!("tegula ", env!("CARGO_PKG_VERSION")));
    let mut roff = Vec::new();
    man.render_title(&mut roff)?;
    man.render_name_section(&mut roff)?;
    man.render_synopsis_section(&mut roff)?;
    man.render_description_section(&mut roff)?;
    man.render_options_section(&mut roff)?;
    if has_commands {
        man.render_subcommands_section(&mut roff)?;
    }
    after.split("\n\n").try_for_each(|part| paragraph(part, &mut roff))?;
    Ok(roff)
}

/// Writes a paragraph of the text after help. Examples have a section of their own and keep lines.
fn paragraph(text: &str, roff: &mut impl Write) -> io::Result<()> {
    let mut page = Roff::new();
    match text.strip_prefix("Examples:\n") {
        Some(examples) => {
            page.control("SH", ["EXAMPLES"]).control("nf", []);
            for example in examples.lines() {
                page.text([roman(example)]);
            }
            page.control("fi", []);
        }
        None => {
            page.control("PP", []).text([roman(text.replace('\n', " "))]);
        }
    }
    page.to_writer(roff)
}
