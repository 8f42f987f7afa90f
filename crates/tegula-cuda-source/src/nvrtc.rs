//! Bindings to NVRTC, NVIDIA's compiler library from CUDA C++ to PTX. It is loaded at run time.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;

/// `nvrtcProgram`.
type Program = *mut c_void;
/// `nvrtcResult`; 0 is success.
type Code = c_int;

/// Functions of NVRTC, with the signatures of `nvrtc.h`.
struct Functions {
    error_string: unsafe extern "C" fn(Code) -> *const c_char,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Code,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Code,
    destroy: unsafe extern "C" fn(*mut Program) -> Code,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Code,
    ptx_size: unsafe extern "C" fn(Program, *mut usize) -> Code,
    ptx: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> Code,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    add_expression: unsafe extern "C" fn(Program, *const c_char) -> Code,
    lowered_name: unsafe extern "C" fn(Program, *const c_char, *mut *const c_char) -> Code,
    /// Since CUDA 11.2.
    architecture_count: Option<unsafe extern "C" fn(*mut c_int) -> Code>,
    architectures: Option<unsafe extern "C" fn(*mut c_int) -> Code>,
    /// Since CUDA 13.3: NVRTC carries the headers of CUDA.
    install_headers: Option<unsafe extern "C" fn(*const c_char, c_uint, *mut *const c_char) -> Code>,
}

/// The loaded library.
pub(super) struct Nvrtc {
    functions: Functions,
    /// The path of the library, or its name if the system's loader found it.
    pub(super) path: PathBuf,
    pub(super) version: (u32, u32),
    // Never unloaded, since NVRTC has thread-local state.
    _library: ManuallyDrop<Library>,
}

/// The input of a compilation.
#[derive(Clone, Debug, Default)]
pub(super) struct Job {
    /// The name in messages.
    pub(super) name: String,
    pub(super) text: String,
    /// Headers by name, with their text.
    pub(super) headers: Vec<(String, String)>,
    pub(super) options: Vec<String>,
    /// Kernels to instantiate, such as `ns::tiled<16>`.
    pub(super) expressions: Vec<String>,
}

/// The output of a compilation.
#[derive(Clone, Debug, Default)]
pub(super) struct Output {
    /// `None` if the compiler reported errors.
    pub(super) ptx: Option<String>,
    pub(super) log: String,
    /// The symbol of each expression of the job.
    pub(super) symbols: Vec<Option<String>>,
}

/// Errors that the log explains: `NVRTC_ERROR_INVALID_OPTION` and `NVRTC_ERROR_COMPILATION`.
const EXPLAINED: [Code; 2] = [5, 6];

impl Nvrtc {
    /// Loads the library; the error is the message of the system's loader or of NVRTC.
    pub(super) fn load(path: &Path) -> Result<Self, String> {
        // NVRTC loads this library by its name, which works in any folder if it is loaded already.
        if let Some(builtins) = builtins(path) {
            // SAFETY: NVRTC's own library, whose initialization has no requirements.
            let library = unsafe { Library::new(builtins) };
            std::mem::forget(library);
        }
        // SAFETY: as above.
        let library = ManuallyDrop::new(unsafe { Library::new(path) }.map_err(reason)?);
        // SAFETY: the types of `Functions` are those of `nvrtc.h`, unchanged since CUDA 8.
        let functions = unsafe { functions(&library) }.map_err(reason)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both point to integers.
        let code = unsafe { (functions.version)(&mut major, &mut minor) };
        let version = (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0));
        let nvrtc = Self { functions, path: path.to_owned(), version, _library: library };
        nvrtc.check(code)?;
        Ok(nvrtc)
    }

    fn check(&self, code: Code) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: NVRTC returns a constant string for every code.
        let text = unsafe { text(Some((self.functions.error_string)(code))) };
        Err(text.unwrap_or_else(|| format!("error {code}")))
    }

    /// The supported architectures, as compute capabilities such as 80.
    pub(super) fn architectures(&self) -> Vec<i32> {
        let (Some(count), Some(list)) = (self.functions.architecture_count, self.functions.architectures) else {
            return Vec::new();
        };
        let mut number = 0;
        // SAFETY: it writes one integer.
        let counted = unsafe { count(&mut number) } == 0;
        let mut architectures = vec![0; usize::try_from(number).unwrap_or(0)];
        // SAFETY: it writes as many integers as it counted.
        let listed = counted && unsafe { list(architectures.as_mut_ptr()) } == 0;
        if listed { architectures } else { Vec::new() }
    }

    /// Whether it contains the CUDA headers.
    pub(super) fn has_headers(&self) -> bool {
        self.functions.install_headers.is_some()
    }

    /// Writes the CUDA headers to a folder, unless they exist.
    pub(super) fn install_headers(&self, folder: &Path) -> Result<(), String> {
        let install = self.functions.install_headers.ok_or("this NVRTC has no headers")?;
        let folder = folder.to_str().ok_or("the path is not UTF-8")?;
        let folder = CString::new(folder).map_err(|error| error.to_string())?;
        let mut reason = ptr::null();
        // SAFETY: the path is terminated, 0 is the default behavior, and the reason may be written.
        let code = unsafe { install(folder.as_ptr(), 0, &mut reason) };
        // SAFETY: NVRTC writes a terminated string or leaves null.
        let reason = unsafe { text(Some(reason)) };
        self.check(code).map_err(|error| reason.unwrap_or(error))
    }

    /// Compiles a job. Errors in the program are in the log of the output; an `Err` is a failure of
    /// NVRTC itself.
    pub(super) fn compile(&self, job: &Job) -> Result<Output, String> {
        let string = |text: &str| CString::new(text).map_err(|_| "the source has a zero byte".to_owned());
        let strings = |list: &mut dyn Iterator<Item = &str>| list.map(string).collect::<Result<Vec<_>, _>>();
        let pointers = |list: &[CString]| list.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let count = |list: &[CString]| c_int::try_from(list.len()).map_err(|_| "too many headers".to_owned());
        let (source, name) = (string(&job.text)?, string(&job.name)?);
        let texts = strings(&mut job.headers.iter().map(|header| header.1.as_str()))?;
        let names = strings(&mut job.headers.iter().map(|header| header.0.as_str()))?;
        let options = strings(&mut job.options.iter().map(String::as_str))?;
        let expressions = strings(&mut job.expressions.iter().map(String::as_str))?;
        let functions = &self.functions;
        let mut handle = Handle { functions, program: ptr::null_mut() };
        // SAFETY: all strings are terminated and outlive the call, which copies them; the arrays
        // have as many elements as their number says.
        let code = unsafe {
            (functions.create)(
                &mut handle.program,
                source.as_ptr(),
                name.as_ptr(),
                count(&names)?,
                pointers(&texts).as_ptr(),
                pointers(&names).as_ptr(),
            )
        };
        self.check(code)?;
        for expression in &expressions {
            // SAFETY: the program is valid, the string terminated.
            self.check(unsafe { (functions.add_expression)(handle.program, expression.as_ptr()) })?;
        }
        // SAFETY: as for `create`.
        let code = unsafe { (functions.compile)(handle.program, count(&options)?, pointers(&options).as_ptr()) };
        let log = self.read(handle.program, functions.log_size, functions.log)?;
        if EXPLAINED.contains(&code) && !log.trim().is_empty() {
            return Ok(Output { ptx: None, log, symbols: Vec::new() });
        }
        self.check(code)?;
        let ptx = self.read(handle.program, functions.ptx_size, functions.ptx)?;
        let symbols = expressions
            .iter()
            .map(|expression| {
                let mut symbol = ptr::null();
                // SAFETY: the program was compiled and still exists; the string belongs to it and
                // is copied before it is destroyed.
                unsafe {
                    let code = (functions.lowered_name)(handle.program, expression.as_ptr(), &mut symbol);
                    text((code == 0).then_some(symbol))
                }
            })
            .collect();
        Ok(Output { ptx: Some(ptx), log, symbols })
    }

    /// Reads a text of a program.
    fn read(
        &self,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> Code,
        get: unsafe extern "C" fn(Program, *mut c_char) -> Code,
    ) -> Result<String, String> {
        let mut bytes = 0;
        // SAFETY: the program is valid; it writes one number.
        self.check(unsafe { size(program, &mut bytes) })?;
        let mut buffer = vec![0u8; bytes];
        // SAFETY: the buffer has the size that NVRTC returned.
        self.check(unsafe { get(program, buffer.as_mut_ptr().cast()) })?;
        let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(buffer.len());
        buffer.truncate(end);
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }
}

/// The message of the system's loader.
fn reason(error: libloading::Error) -> String {
    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A program that is destroyed when it is dropped.
struct Handle<'a> {
    functions: &'a Functions,
    program: Program,
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if !self.program.is_null() {
            // SAFETY: the program was created and is not used again.
            unsafe { (self.functions.destroy)(&mut self.program) };
        }
    }
}

/// Copies a string; `None` for null.
///
/// # Safety
/// A pointer that is not null points to a terminated string.
unsafe fn text(pointer: Option<*const c_char>) -> Option<String> {
    let pointer = pointer.filter(|pointer| !pointer.is_null())?;
    // SAFETY: by the caller.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// # Safety
/// The library is NVRTC.
unsafe fn functions(library: &Library) -> Result<Functions, libloading::Error> {
    // SAFETY: by the caller, the symbols have the types of the fields.
    unsafe {
        Ok(Functions {
            error_string: *library.get(b"nvrtcGetErrorString\0")?,
            version: *library.get(b"nvrtcVersion\0")?,
            create: *library.get(b"nvrtcCreateProgram\0")?,
            destroy: *library.get(b"nvrtcDestroyProgram\0")?,
            compile: *library.get(b"nvrtcCompileProgram\0")?,
            ptx_size: *library.get(b"nvrtcGetPTXSize\0")?,
            ptx: *library.get(b"nvrtcGetPTX\0")?,
            log_size: *library.get(b"nvrtcGetProgramLogSize\0")?,
            log: *library.get(b"nvrtcGetProgramLog\0")?,
            add_expression: *library.get(b"nvrtcAddNameExpression\0")?,
            lowered_name: *library.get(b"nvrtcGetLoweredName\0")?,
            architecture_count: library.get(b"nvrtcGetNumSupportedArchs\0").ok().map(|symbol| *symbol),
            architectures: library.get(b"nvrtcGetSupportedArchs\0").ok().map(|symbol| *symbol),
            install_headers: library.get(b"nvrtcInstallBundledHeaders\0").ok().map(|symbol| *symbol),
        })
    }
}

/// The library with the built-in functions of NVRTC, in the same folder.
fn builtins(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    let is_builtins = |entry: &std::fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        (name.starts_with("libnvrtc-builtins.") || name.starts_with("nvrtc-builtins64_")) && !name.ends_with(".a")
    };
    std::fs::read_dir(folder).ok()?.flatten().find(is_builtins).map(|entry| entry.path())
}
