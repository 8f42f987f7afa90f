//! Compilation: prepares a program, runs a compiler, and matches its symbols to the kernels.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::blank::{Blanked, blank};
use super::declaration::Kind;
use super::find::{self, Compiler};
use super::headers::{self, PRELUDE, TEMPLATES};
use super::launch::Instance;
use super::nvrtc::{Job, Nvrtc, Output};
use super::source::{Source, Target};
use super::symbols::Symbols;
use super::token::tokens;
use super::{CompileError, CompileOptions, Compiled};

/// Names of the headers that are included before the program.
const PRELUDE_NAME: &str = "tegula_prelude.cuh";
const TEMPLATES_NAME: &str = "tegula_templates.cuh";

/// Compiles a program with a compiler.
pub(super) fn compile(
    compiler: &Compiler,
    path: &Path,
    text: &str,
    options: &CompileOptions,
) -> Result<Compiled, CompileError> {
    let version = match compiler {
        Compiler::Nvrtc(nvrtc) => nvrtc.version,
        Compiler::Nvcc(_, version) => parse_version(version).unwrap_or(Target::default().version),
        Compiler::Clang { .. } => Target::default().version,
    };
    let target = Target { version, runtime: matches!(compiler, Compiler::Nvrtc(_)) };
    let source = Source::read(path, text, options, &target);
    let requested = source.request(options.kernel.as_deref())?;
    let run = Run { name: compiler.name(), source: &source, path, text, options, requested: requested.as_ref() };
    let mut instances = source.instances(requested.as_ref());
    let output = match compiler {
        Compiler::Nvrtc(nvrtc) => run.nvrtc(nvrtc, &mut instances)?,
        Compiler::Nvcc(program, _) => run.program(program, None)?,
        Compiler::Clang { path: program, toolkit, .. } => run.program(program, Some(toolkit))?,
    };
    let ptx = output.ptx.unwrap_or_default();
    let mut symbols = Symbols::read(&ptx);
    let named: Vec<(Instance, Option<String>)> = instances.into_iter().zip(output.symbols).collect();
    for symbol in named.iter().filter_map(|(_, symbol)| symbol.as_deref()) {
        symbols.reserve(symbol);
    }
    let mut kernels = source.list(requested.as_ref(), &mut |instance, template| {
        let lowered = named.iter().find(|(other, _)| other == instance).and_then(|(_, symbol)| symbol.clone());
        lowered.or_else(|| {
            let plain = Instance { kernel: instance.kernel, arguments: Vec::new() };
            let name = source.name(&plain);
            let name = name.split('<').next().unwrap_or(&name);
            symbols.take(name, template.then_some(&instance.arguments[..]), source.place(instance.kernel).1)
        })
    });
    if let Some(name) = &options.kernel
        && requested.is_none()
    {
        // The name is a symbol, which is known only from the PTX.
        super::choose(path, &kernels, Some(name)).map(drop).or_else(|error| match error {
            CompileError::Ambiguous { .. } => Ok(()),
            error => Err(error),
        })?;
    }
    kernels.iter_mut().for_each(|kernel| kernel.launches.sort_by_key(|launch| launch.line));
    Ok(Compiled { ptx, kernels, compiler: run.name.clone(), log: output.log })
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((major.parse().ok()?, minor.get(..digits)?.parse().ok()?))
}

struct Run<'a> {
    name: String,
    source: &'a Source,
    path: &'a Path,
    text: &'a str,
    options: &'a CompileOptions,
    requested: Option<&'a Instance>,
}

impl Run<'_> {
    fn failed(&self, reason: String) -> CompileError {
        CompileError::Compiler { compiler: self.name.clone(), reason }
    }

    /// The architecture without its prefix: `80`, `90a`.
    fn arch(&self) -> Result<&str, CompileError> {
        let arch = self.options.arch.trim_start_matches("sm_").trim_start_matches("compute_");
        let digits = arch.trim_end_matches(['a', 'f']);
        let valid = digits.len() >= 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        valid.then_some(arch).ok_or_else(|| self.unknown_arch(&[80, 90]))
    }

    fn unknown_arch(&self, known: &[i32]) -> CompileError {
        let known = known.iter().map(|arch| format!("sm_{arch}")).collect();
        CompileError::Architecture { arch: self.options.arch.clone(), compiler: self.name.clone(), known }
    }

    /// Options that all compilers share.
    fn shared_options(&self) -> Vec<String> {
        let mut options: Vec<String> = self.options.defines.iter().map(|define| format!("-D{define}")).collect();
        options.extend(self.options.standard.iter().map(|standard| format!("-std={standard}")));
        options.extend(self.options.includes.iter().map(|folder| format!("-I{}", folder.display())));
        if let Some(folder) = self.path.parent() {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            options.push(format!("-I{}", folder.display()));
        }
        options
    }

    fn nvrtc(&self, nvrtc: &Nvrtc, instances: &mut Vec<Instance>) -> Result<Output, CompileError> {
        let arch = self.arch()?;
        let known = nvrtc.architectures();
        let number = arch.trim_end_matches(['a', 'f']).parse().unwrap_or(0);
        if !known.is_empty() && !known.contains(&number) {
            return Err(self.unknown_arch(&known));
        }
        let names: Vec<_> = instances.iter().flat_map(|i| &i.arguments).flat_map(|text| tokens(text, 0)).collect();
        let blanked = blank(&self.source.program, &self.source.declarations, &names);
        let mut folders = find::include_folders(&nvrtc.path);
        if !nvrtc.has_headers() {
            folders.extend(find::toolkit_includes());
        }
        let mut job = Job { name: self.path.display().to_string(), ..Job::default() };
        job.options = vec![format!("--gpu-architecture=compute_{arch}"), "-lineinfo".to_owned()];
        // The default standard of NVRTC before CUDA 12 is older than that of nvcc.
        if self.options.standard.is_none() && nvrtc.version.0 < 12 {
            job.options.push("-std=c++17".to_owned());
        }
        job.options.extend(self.shared_options());
        let own_options = job.options.len();
        job.options.extend(folders.iter().map(|folder| format!("-I{}", folder.display())));
        let expressions = |list: &[Instance]| list.iter().map(|i| self.source.name(i)).collect::<Vec<_>>();
        job.expressions = expressions(instances);
        let missing = self.texts(&blanked, &folders, &mut job);
        if blanked.unannotated {
            job.options.push("-default-device".to_owned());
        }
        let compile = |job: &Job| nvrtc.compile(job).map_err(|reason| self.failed(reason));
        let mut notes = Vec::new();
        let mut output = compile(&job)?;
        // A CUDA header is missing. Since CUDA 13.3, NVRTC contains the CUDA headers.
        if output.ptx.is_none() && missing_header(&output.log).is_some() && nvrtc.has_headers() {
            let folder = find::header_cache(nvrtc.version);
            nvrtc
                .install_headers(&folder)
                .map_err(|reason| self.failed(format!("{}: headers not written: {reason}", folder.display())))?;
            // These folders come first, because their headers have the version of the compiler.
            for folder in [folder.join("cccl"), folder] {
                job.options.insert(own_options, format!("-I{}", folder.display()));
            }
            output = compile(&job)?;
        }
        if output.ptx.is_none()
            && let Some(header) = missing_header(&output.log)
        {
            return Err(self.header(&header, &output.log, nvrtc.version.0));
        }
        // Instances that were found in the program but that the compiler rejects are removed.
        for _ in 0..2 {
            let refused = refused_names(&output.log);
            let wrong = |i: &Instance| Some(i) != self.requested && refused.contains(&squeeze(&self.source.name(i)));
            if output.ptx.is_some() || !instances.iter().any(wrong) {
                break;
            }
            let names = expressions(instances).into_iter().filter(|name| refused.contains(&squeeze(name)));
            let names = names.collect::<Vec<_>>().join(", ");
            notes.push(format!("not compiled: {names}: {}", first_error(&output.log)));
            instances.retain(|i| !wrong(i));
            job.expressions = expressions(instances);
            output = compile(&job)?;
        }
        if output.ptx.is_none()
            && let Some(plain) = self.plain(nvrtc, &job, &blanked)?
        {
            output = plain;
        }
        // If an instance of the program has an error, only the requested one is compiled.
        let needed: Vec<Instance> = instances.iter().filter(|i| Some(*i) == self.requested).cloned().collect();
        if output.ptx.is_none() && needed.len() < instances.len() {
            let fewer = compile(&Job { expressions: expressions(&needed), ..job.clone() })?;
            if fewer.ptx.is_some() {
                let names = expressions(instances).join(", ");
                notes.push(format!("not compiled: {names}: {}", first_error(&output.log)));
                *instances = needed;
                output = fewer;
            }
        }
        if output.ptx.is_none() {
            return Err(self.rejected(output.log, &blanked, &missing));
        }
        output.log = self.own_messages(&output.log);
        for (name, line) in missing {
            notes.push(format!("header \"{name}\" (line {line}) not found; the include is ignored"));
        }
        output.log.extend(notes.iter().map(|note| format!("{}: warning: {note}\n", self.path.display())));
        Ok(output)
    }

    /// Sets the source and the headers of a job; returns the missing headers with their lines.
    fn texts(&self, blanked: &Blanked, folders: &[PathBuf], job: &mut Job) -> Vec<(String, u32)> {
        let files = &self.source.program.files;
        let mut missing = Vec::new();
        let name_of = |index: usize| format!("tegula/{index}");
        for (index, (file, text)) in files.iter().zip(&blanked.texts).enumerate() {
            let mut text = text.clone();
            let mut edits: Vec<(std::ops::Range<usize>, String)> = Vec::new();
            for (_, range, replace) in blanked.edits.iter().filter(|edit| edit.0 as usize == index) {
                // Line breaks are kept, so that the following lines keep their numbers.
                let lines = text.get(range.clone()).map_or(0, |text| text.matches('\n').count());
                edits.push((range.clone(), format!("{replace}{}", "\n".repeat(lines))));
            }
            for include in &file.includes {
                let replace = match include.file {
                    Some(target) => Some(format!("\"{}\"", name_of(target as usize))),
                    None if headers::is_standard(&include.name) => None,
                    None => match self.external(include, blanked, folders) {
                        Header::Compiler => None,
                        Header::Host => Some("\"tegula/empty\"".to_owned()),
                        Header::Missing => {
                            missing.push((include.name.clone(), include.line));
                            Some("\"tegula/empty\"".to_owned())
                        }
                    },
                };
                // Only if the directive was not blanked as a part of a host function.
                let written = text.get(include.start..include.end).is_some_and(|name| !name.trim().is_empty());
                edits.extend(replace.filter(|_| written).map(|replace| (include.start..include.end, replace)));
            }
            edits.sort_by_key(|edit| std::cmp::Reverse(edit.0.start));
            for (range, replace) in edits {
                if text.is_char_boundary(range.start) && text.is_char_boundary(range.end) {
                    text.replace_range(range, &replace);
                }
            }
            let path = file.path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
            if index == 0 {
                let templates =
                    if blanked.templates { format!("#include \"{TEMPLATES_NAME}\"\n") } else { String::new() };
                job.text = format!("#include \"{PRELUDE_NAME}\"\n{templates}#line 1 \"{path}\"\n{text}");
            } else {
                job.headers.push((name_of(index), format!("#line 1 \"{path}\"\n{text}")));
            }
        }
        let own = [(PRELUDE_NAME, PRELUDE), (TEMPLATES_NAME, TEMPLATES), ("tegula/empty", "\n")];
        let listed = own.into_iter().chain(headers::virtual_headers());
        job.headers.extend(listed.map(|(name, text)| (name.to_owned(), text.to_owned())));
        // Headers with a path, such as `sys/time.h`, are added by their names in the program.
        let half = headers::HALF_NAMES.iter().any(|name| blanked.uses(name));
        for name in files.iter().flat_map(|file| &file.includes).map(|include| &include.name) {
            let text = match headers::virtual_text(name) {
                Some(_) if half && headers::brings_half(name) => headers::HALF_TEXT.to_owned(),
                Some(text) => text.to_owned(),
                None if name == "cub/cub.cuh" => headers::CUB
                    .iter()
                    .filter(|(class, _)| blanked.uses(class))
                    .map(|(_, header)| format!("#include <cub/{header}>\n"))
                    .collect(),
                None => continue,
            };
            job.headers.retain(|(known, _)| known != name);
            job.headers.push((name.clone(), text));
        }
        missing
    }

    /// Decides how to provide a header that is not a file of the program.
    fn external(&self, include: &super::preprocess::Include, blanked: &Blanked, folders: &[PathBuf]) -> Header {
        let name = &include.name;
        if let Some((_, space)) = headers::BY_NAMESPACE.iter().find(|(folder, _)| name.starts_with(folder)) {
            return if blanked.uses(space) { Header::Compiler } else { Header::Host };
        }
        let beside = self.path.parent().map(Path::to_owned);
        let exists =
            folders.iter().chain(&self.options.includes).chain(&beside).any(|folder| folder.join(name).is_file());
        if exists || headers::package(name, 13).is_some() { Header::Compiler } else { Header::Missing }
    }

    /// Compiles the unmodified program without the prelude, if it has no host code. This is for
    /// sources that were written for NVRTC.
    fn plain(&self, nvrtc: &Nvrtc, job: &Job, blanked: &Blanked) -> Result<Option<Output>, CompileError> {
        let host = |(_, kind): &(u32, Kind)| *kind == Kind::Function;
        if blanked.removed.values().any(host) {
            return Ok(None);
        }
        let mut job = Job { text: self.text.to_owned(), ..job.clone() };
        job.options.retain(|option| option != "-default-device");
        for option in [None, Some("-default-device")] {
            job.options.extend(option.map(str::to_owned));
            let output = nvrtc.compile(&job).map_err(|reason| self.failed(reason))?;
            if output.ptx.is_some() {
                return Ok(Some(output));
            }
        }
        Ok(None)
    }

    fn header(&self, header: &str, log: &str, major: u32) -> CompileError {
        // `a.cu(3): …` or `a.cu:3:10: …`
        let place = log.lines().find(|line| line.contains(header)).and_then(|line| {
            let (before, _) =
                [": catastrophic error", ": fatal error"].iter().find_map(|word| line.split_once(word))?;
            match before.strip_suffix(')').and_then(|before| before.rsplit_once('(')) {
                Some((file, line)) => Some(format!("{file}:{line}")),
                None => before.rsplit_once(':').map(|(place, _)| place.to_owned()),
            }
        });
        let advice = match headers::package(header, major) {
            Some(package) => format!("run `pip install {package}`, or give its folder with -I"),
            None => "give its folder with -I".to_owned(),
        };
        CompileError::Header { header: header.to_owned(), place, advice }
    }

    fn rejected(&self, log: String, blanked: &Blanked, missing: &[(String, u32)]) -> CompileError {
        // NVRTC rejects the name expression of the requested instance.
        if let (Some(line), Some(instance)) =
            (log.lines().find(|line| line.starts_with("__nv_name_map")), self.requested)
        {
            let (kernel, params) = self.source.template(instance);
            let reason = line.split_once("error: ").map_or(line, |(_, reason)| reason).to_owned();
            return CompileError::Instance { name: self.source.name(instance), kernel, reason, params };
        }
        let mut notes: Vec<String> = missing
            .iter()
            .map(|(name, line)| format!("header \"{name}\" (line {line}) not found; give its folder with -I"))
            .collect();
        for (name, &(line, kind)) in &blanked.removed {
            if log.contains(&format!("identifier \"{name}\" is undefined")) {
                notes.push(match kind {
                    Kind::Function => format!("{name} (line {line}) is a host function; mark it __device__"),
                    _ => format!("{name} (line {line}) is a host variable; declare it constexpr or __constant__"),
                });
            }
        }
        notes.sort();
        CompileError::Rejected { log: self.own_messages(&log).trim_end().to_owned(), notes }
    }

    /// The compiler's messages, without warnings about headers that are not part of the program.
    fn own_messages(&self, log: &str) -> String {
        let own: Vec<String> = self.source.program.files.iter().map(|f| f.path.display().to_string()).collect();
        let (mut out, mut keep) = (String::new(), true);
        for line in log.lines() {
            if line.starts_with("Remark: The warnings can be suppressed") {
                continue;
            }
            let message = [": warning ", ": error", ": catastrophic error", ": note", ": remark"];
            if let Some((place, rest)) = message.iter().find_map(|word| line.find(word)).map(|at| line.split_at(at)) {
                let file = place.rsplit_once('(').map_or(place, |(file, _)| file);
                // Kernels seem unused, since their launches were removed with the host code.
                let unused = rest.contains("#177-D: function \"");
                keep = !rest.starts_with(": warning ") || (own.iter().any(|path| path == file) && !unused);
            }
            let blank = line.trim().is_empty() && (out.is_empty() || out.ends_with("\n\n"));
            if keep && !blank {
                out.push_str(line);
                out.push('\n');
            }
        }
        let text = out.trim_end();
        if text.is_empty() { String::new() } else { format!("{text}\n") }
    }

    /// Runs nvcc, or clang with a toolkit, on the unmodified program with its host code.
    fn program(&self, program: &Path, toolkit: Option<&Path>) -> Result<Output, CompileError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tegula-cuda-{}-{number}", std::process::id()));
        let io = |error: std::io::Error| self.failed(error.to_string());
        std::fs::create_dir_all(&folder).map_err(io)?;
        let result = self.run_in(&folder, program, toolkit).map_err(io);
        drop(std::fs::remove_dir_all(&folder));
        let (success, ptx, log) = result?;
        if success {
            return Ok(Output { ptx: Some(ptx), log, symbols: Vec::new() });
        }
        if let Some(header) = missing_header(&log) {
            return Err(self.header(&header, &log, 13));
        }
        Err(CompileError::Rejected { log: log.trim_end().to_owned(), notes: Vec::new() })
    }

    fn run_in(&self, folder: &Path, program: &Path, toolkit: Option<&Path>) -> std::io::Result<(bool, String, String)> {
        let (input, output) = (folder.join("program.cu"), folder.join("program.ptx"));
        let path = self.path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
        // Taking the address of a kernel instantiates it.
        let pointer = |(i, instance): (usize, Instance)| {
            format!("\nstatic void* tegula_instance_{i} = (void*)&{};", self.source.name(&instance))
        };
        let requested: String = self.requested.cloned().into_iter().enumerate().map(pointer).collect();
        std::fs::write(&input, format!("#line 1 \"{path}\"\n{}\n{requested}\n", self.text))?;
        let arch = self.arch().unwrap_or("80");
        let mut command = Command::new(program);
        match toolkit {
            // As with NVRTC, constexpr functions need no execution space.
            None => command
                .args(["-ptx", "-lineinfo", "--expt-relaxed-constexpr", "--extended-lambda"])
                .arg(format!("-arch=sm_{arch}")),
            Some(toolkit) => command
                .args(["-x", "cuda", "--cuda-device-only", "-S", "-O3", "-gline-tables-only"])
                .arg(format!("--cuda-gpu-arch=sm_{arch}"))
                .arg(format!("--cuda-path={}", toolkit.display())),
        };
        let run = command.args(self.shared_options()).arg("-o").arg(&output).arg(&input).output()?;
        let mut log = String::from_utf8_lossy(&run.stderr).into_owned();
        log.push_str(&String::from_utf8_lossy(&run.stdout));
        let ptx = if run.status.success() { std::fs::read_to_string(&output)? } else { String::new() };
        Ok((run.status.success(), ptx, log))
    }
}

/// The source of a header that is not a file of the program.
enum Header {
    /// The compiler reads the header itself.
    Compiler,
    /// Only host code needs the header, so it is replaced by an empty one.
    Host,
    /// The header is not found.
    Missing,
}

/// Names of the instances that NVRTC rejects, from its log.
fn refused_names(log: &str) -> Vec<String> {
    log.lines().filter_map(|line| line.trim_start().strip_prefix("#pragma nv_mangled_name ")).map(squeeze).collect()
}

/// The text of the first error in a log.
fn first_error(log: &str) -> &str {
    log.lines().find_map(|line| line.split_once("error: ")).map_or("", |(_, text)| text)
}

/// A name without spaces.
fn squeeze(name: &str) -> String {
    name.chars().filter(|c| !c.is_whitespace()).collect()
}

/// The header that the compiler did not find, from its log.
fn missing_header(log: &str) -> Option<String> {
    // NVRTC and nvcc's front end; clang and gcc.
    for marker in ["not open source file \"", "cannot open source file \""] {
        if let Some((_, after)) = log.split_once(marker) {
            return after.split('"').next().map(str::to_owned);
        }
    }
    for line in log.lines() {
        if let Some((_, after)) = line.split_once("fatal error: ") {
            if let Some(name) = after.strip_suffix(": No such file or directory") {
                return Some(name.to_owned());
            }
            if let Some(name) = after.strip_suffix("' file not found") {
                return Some(name.trim_start_matches('\'').to_owned());
            }
        }
    }
    None
}
